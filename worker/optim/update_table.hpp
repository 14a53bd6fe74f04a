// The parameters that are updated, averaged or both in one pass, as a table on their device, with the CPU's passes and the GPU's behind one
// interface. Owns the table, not what it points to. Nothing waits for a GPU, and all may be captured in a CUDA graph.
// Float32 and bfloat16 parameters. One thread.
#pragma once

#include <vector>

#include <torch/types.h>

#include "worker/optim/update_arithmetic.hpp"

namespace vla {

// What a row is made of; undefined: there is none. All but the scalars lie in memory as the parameter does.
struct UpdateTensors {
  torch::Tensor parameter = {}, gradient = {};
  torch::Tensor master = {}, exp_avg = {}, exp_avg_sq = {};  // float32; without `master` of the parameter's type, and it is updated itself
  torch::Tensor step = {}, lr = {};  // float32 scalars
  torch::Tensor average = {};  // float32
};
bool fits_update_table(const torch::Tensor& parameter);
UpdateRow update_row(const UpdateTensors& tensors);  // Error where they do not lie alike

// The elements of rows that are worked on: all of them, or those that several ranks leave to this one, in groups that are updated one by one.
struct UpdatePart {
  int64_t row = 0;
  int64_t first = 0, end = 0;
  bool in_norm = true;
};
using UpdateGroups = std::vector<std::vector<UpdatePart>>;

class UpdateTable {
 public:
  // Does nothing where the rows are those it has; then the groups must be, too. Within a graph's capture at most once after a call outside of
  // it with as many rows.
  void set_rows(std::vector<UpdateRow> rows, torch::Device device);
  void set_rows(std::vector<UpdateRow> rows, const UpdateGroups& groups, torch::Device device);

  // Of all gradients together, into float32 scalars: the norm, and what clipping to `limit` multiplies them with (limit 0: 1).
  void gradient_norm(double limit, torch::Tensor& norm, torch::Tensor& factor) const;
  // The same in two halves, for ranks that add up their sums: a float64 scalar, then from it the norm.
  void sum_of_squares(torch::Tensor& sum) const;
  void norm_of(const torch::Tensor& sum, double limit, torch::Tensor& norm, torch::Tensor& factor) const;
  // Float32 scalars; undefined: not looked at. skip = 1 where `norm` is not finite or `found_inf` not 0, added to `skipped`, else 0, and
  // every row with a gradient counts a step.
  void begin_update(const torch::Tensor& norm, const torch::Tensor& found_inf, torch::Tensor& skip, torch::Tensor& skipped) const;
  void update(const UpdateRule& rule) const;
  void update_group(const UpdateRule& rule, size_t group) const;

 private:
  double sum_on_cpu() const;
  void update_chunks(const UpdateRule& rule, size_t first, size_t last) const;

  torch::Device device_ = torch::kCPU;
  std::vector<UpdateRow> rows_;
  std::vector<UpdateChunk> chunks_;
  std::vector<size_t> group_ends_;  // in chunks_
  torch::Tensor host_, on_device_;  // bytes: rows, then chunks
  torch::Tensor spare_;  // of host_'s size, for a capture
  std::vector<torch::Tensor> of_graphs_;  // what captured copies read
  torch::Tensor partial_;  // float32 [chunks]: sums of squares
};

}  // namespace vla
