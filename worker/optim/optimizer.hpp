// AdamW or Adam, with gradient clipping by global norm: on LibTorch's fused kernels or, in fast mode (at construction),
// in one pass of our own. Owns the moments of the parameters it is given, which it updates in place, and float32 copies
// of 16-bit ones. An update that is to be left out is left out by the kernels: nothing here waits for a GPU. A parameter
// without a gradient is left alone, as in PyTorch. Used by one thread. Mismatching state throws Error listing names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "worker/checkpoint/safetensors.hpp"
#include "worker/optim/options.hpp"
#include "worker/optim/update_table.hpp"
#include "worker/policies/policy.hpp"

namespace cxxrun {
class BucketShares;
}

namespace vla {

class Ema;

class Optimizer {
 public:
  // `masters`: float32 values, by name, that parameters of 16 bits were rounded from; without one, its copy begins with
  // the rounded parameter.
  Optimizer(const std::vector<ParameterGroup>& groups, const OptimizerOptions& options, const TensorMap& masters = {});

  // What step() does besides; in the same pass where there is one.
  struct AfterUpdate {
    bool zero_grad = false;
    // Instead: forgets the gradients' memory, so that the next backward pass gives its own instead of adding to zeros.
    bool release_grad = false;
    Ema* average = nullptr;  // Ema::update(), whose decay the caller sets; must outlive this
  };
  void set_after_update(const AfterUpdate& after) { after_ = after; }

  // On all ranks, after a backward pass, in fast mode: from here on each rank updates its shares alone, and all have the same parameters after
  // step(). State and averages move to memory laid out like the buckets. `all_reduce_sum`: over the ranks, in place. Both must outlive this.
  void share(cxxrun::BucketShares& shares, std::function<void(const torch::Tensor&)> all_reduce_sum);
  // Before state and averages are read, on all ranks: brings the other ranks' shares. Nothing without share().
  void gather_state();

  // Learning rate of the coming step()s as a factor of each group's own. Call outside of a captured graph.
  void set_lr_factor(double factor);
  double lr() const { return options_.lr * factor_; }  // of groups without a rate of their own; what is logged

  std::vector<torch::Tensor> gradients() const;  // of the parameters that have one

  // torch.nn.utils.clip_grad_norm_ over all parameters: scales by min(1, grad_clip_norm / (norm + 1e-6)), in fast mode
  // what the next step() reads instead of the gradients in memory. Returns the norm before clipping, a scalar on the
  // parameters' device that holds until the next call. With loss scaling, unscale the gradients first.
  torch::Tensor clip_grad_norm();
  // Where `found_inf` (float32 scalar, of GradScaler) is not 0, or where the last clip_grad_norm() was infinite or NaN,
  // parameters, moments and step counts stay as they are.
  void step(const torch::Tensor& found_inf = {});
  void zero_grad();  // keeps the memory: gradients are views of DDP's buckets
  // Where step() releases gradients: those of a step that did not get there, such as one whose capture failed.
  void discard_grad() {
    if (after_.release_grad) release_grad();
  }

  // How many updates were left out since this was made: float32 scalar on the parameters' device.
  const torch::Tensor& skipped_steps() const { return skipped_; }

  // "<parameter>.exp_avg", "<parameter>.exp_avg_sq", "<parameter>.step" (float32 scalar) and, of 16-bit parameters with
  // master weights, "<parameter>.master": the live tensors.
  TensorMap state() const;
  // After the weights were loaded. State of a run without master weights, or with them, may continue the other way.
  void load_state(const TensorMap& state);

 private:
  struct Slot {
    std::string name;
    torch::Tensor parameter, exp_avg, exp_avg_sq, step;
    torch::Tensor master;  // float32; undefined where the parameter itself is updated
    std::optional<size_t> shared = {};  // bucket of shares_
    int64_t offset = 0;  // there
  };
  // What one fused call may hold: one device, one dtype, one learning rate.
  struct Bucket {
    double lr = 0;
    torch::Tensor lr_on_device;  // float32 scalar; undefined on the CPU but in fast mode
    std::vector<Slot> slots;
  };

  void set_rows();
  UpdateGroups groups(const std::vector<const Slot*>& slots) const;
  void release_grad();
  void step_in_one_pass(const torch::Tensor& found_inf);
  torch::Tensor to_skip(const torch::Tensor& found_inf) const;
  void step(const Bucket& bucket, const torch::Tensor& skip);

  OptimizerOptions options_;
  double factor_ = 1;
  std::vector<Bucket> buckets_;
  torch::Tensor norm_;  // of the last clip_grad_norm()
  torch::Tensor skipped_;
  AfterUpdate after_;
  bool one_pass_ = false;
  bool clipped_ = false;  // since the last step()
  UpdateTable table_;
  torch::Tensor clip_factor_, skip_;  // float32 scalars of one pass
  cxxrun::BucketShares* shares_ = nullptr;  // null: every rank updates all
  std::function<void(const torch::Tensor&)> all_reduce_sum_;
  std::vector<std::vector<torch::Tensor>> shared_state_;  // by bucket: memory of moments, masters, averages
  torch::Tensor sum_;  // float64 scalar: of the squares
};

}  // namespace vla
