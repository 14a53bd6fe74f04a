// What all ranks must know of a step before it starts: the global loss denominators, and whether any rank was asked to save or to
// stop. One small sum-reduction carries both. The requests are read one step late, from a copy that has long arrived, so that
// the host never waits for the step the GPU is working on.
#pragma once

#include <optional>

#include <c10/core/Event.h>
#include <torch/types.h>

#include "worker/distributed/process_group.hpp"
#include "worker/shutdown.hpp"

namespace vla {

class StepAgreement {
 public:
  StepAgreement(const cxxrun::World& world, ShutdownWatcher& shutdown) : world_(world), shutdown_(shutdown) {}

  // Sums `counts` (float64 [n], on the device) over the ranks, and takes this rank's requests along.
  torch::Tensor exchange(const torch::Tensor& counts);

  struct Requests {
    bool save = false;
    bool stop = false;
  };
  // Those of the previous exchange(); the same on all ranks.
  Requests requests();

 private:
  const cxxrun::World& world_;
  ShutdownWatcher& shutdown_;
  torch::Tensor host_;  // float64 [2]; page-locked with a GPU
  std::optional<c10::Event> copied_;
};

}  // namespace vla
