// The numbers between two log lines. Losses and gradient norms are added up on the device; nothing is read back before close(). A
// step whose gradient is NaN or infinite is left out of the means, and counted. Used by the training thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/types.h>

#include "worker/distributed/process_group.hpp"
#include "worker/loggers/logger.hpp"
#include "worker/policies/policy.hpp"
#include "worker/step_timer.hpp"

namespace vla {

class MetricWindow {
 public:
  explicit MetricWindow(at::Device device) : timer_(device) { restart({}); }

  StepTimer& timer() { return timer_; }
  // On the device, in memory that stays: both may be captured in a graph. add_loss: of every micro-batch; end_step: after a step's
  // last, with the global gradient's norm, a scalar.
  void add_loss(const PolicyLoss& loss);
  void end_step(const torch::Tensor& grad_norm);
  // Counts a step, of `samples` of all ranks; on the host.
  void count_step(int64_t samples);
  // This rank's part of the loss of the step that is being added up, a scalar; undefined before the first add_loss().
  torch::Tensor step_loss() const { return step_.defined() ? step_[0] : torch::Tensor(); }

  int64_t steps() const { return steps_; }
  // Means over the window and all ranks, then starts the next window. `waited`: this rank's time in the loader since the start of
  // training. A collective; waits for the device.
  StepMetrics close(const cxxrun::World& world, std::chrono::nanoseconds waited);
  void restart(std::chrono::nanoseconds waited);
  // Leaves out time that was not spent training: a validation, say.
  void exclude(std::chrono::steady_clock::duration duration) { start_ += duration; }

 private:
  StepTimer timer_;
  torch::Tensor step_, sums_;  // float64 [1 + metrics]: loss, then the policy's metrics
  torch::Tensor norms_;  // float64 [2]: sum of the finite gradient norms, their number
  std::vector<std::string> names_;
  int64_t steps_ = 0, samples_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::chrono::nanoseconds waited_before_{};
};

}  // namespace vla
