// Runs a step's device work as CUDA graphs: some steps are run as they are, so that everything that is made lazily is made; then the
// work is captured, once for each kind and shape of batch, and replayed. The work must only queue kernels, on the current stream and
// on memory that stays, or that it allocates itself. Batches are copied to where the graph reads them. What cannot be captured runs as
// it is for the rest of the training, and the reason is said once. Without a GPU it just calls. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "worker/batch.hpp"

namespace vla {

class StepGraph {
 public:
  // `reason`: why not to capture at all, for the user; empty = capture. `required`: a failed capture is an error.
  StepGraph(std::string reason, bool required);
  ~StepGraph();

  using Work = std::function<void(const Batch& batch, const torch::Tensor& counts)>;
  // `kind`: which of the functions that a step calls.
  void run(int kind, const Batch& batch, const torch::Tensor& counts, const Work& work);
  // At the end of every step.
  void end_step() { ++steps_; }

  bool is_replayed() const { return replayed_; }  // the last run() was
  int64_t nodes() const { return nodes_; }  // of all graphs so far: kernels, copies, fills, events
  const std::string& reason() const { return reason_; }  // why not; empty = graphs are used

 private:
  struct Captured;
  std::unique_ptr<Captured> capture(const Batch& batch, const torch::Tensor& counts, const Work& work);

  std::string reason_;
  bool required_;
  int64_t steps_ = 0, nodes_ = 0;
  bool replayed_ = false;
  struct Pool;
  std::unique_ptr<Pool> pool_;
  std::map<std::string, std::unique_ptr<Captured>> captured_;  // by kind and shapes
};

}  // namespace vla
