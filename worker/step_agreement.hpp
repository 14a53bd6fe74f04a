// What all ranks must know of a step before it starts: the global loss denominators; whether any rank was asked to save or to
// stop; and which ranks met NaN or infinity in the step before. One small sum-reduction carries all of it. The latter are read
// one step late, from a copy that has long arrived, so that the host never waits for the step the GPU is working on. One thread.
#pragma once

#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <torch/types.h>

#include "worker/distributed/process_group.hpp"
#include "worker/shutdown.hpp"

namespace vla {

// A step whose loss or gradient was NaN or infinite.
struct NonFiniteStep {
  int64_t step = 0;  // number of the update, from 0
  std::vector<int64_t> ranks;  // whose own loss was; empty when only the summed gradient was
};

class StepAgreement {
 public:
  StepAgreement(const cxxrun::World& world, ShutdownWatcher& shutdown);

  // Remembers, for the next exchange, whether this rank's `loss` (a scalar) and the global `grad_norm` are finite. On the device, in
  // memory that stays: may be captured in a graph.
  void note(const torch::Tensor& loss, const torch::Tensor& grad_norm);
  // What was noted was noted in `step`.
  void set_step(int64_t step) { noted_step_ = step; }

  // Sums `counts` (float64 [n], on the device) over the ranks, and takes this rank's requests and notes along.
  torch::Tensor exchange(const torch::Tensor& counts);

  struct Requests {
    bool save = false;
    bool stop = false;
    std::optional<NonFiniteStep> non_finite = {};
  };
  // Those of the previous exchange(); the same on all ranks. A second call returns none.
  Requests requests();
  // Exchanges and reads at once, for the end of a window of steps. Waits for the device.
  Requests settle();

 private:
  const cxxrun::World& world_;
  ShutdownWatcher& shutdown_;
  torch::Tensor noted_;  // float64 [size + 1] on the device: own loss is not finite, at [rank]; the gradient is not, at the end
  int64_t noted_step_ = 0, sent_step_ = 0;
  torch::Tensor host_;  // float64 [2 + size + 1]; page-locked with a GPU
  bool unread_ = false;
  std::optional<c10::Event> copied_;
};

}  // namespace vla
