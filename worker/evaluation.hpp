// How good a policy is on held-out frames, without a robot: its loss and how far its predicted action chunks are from the
// demonstrated ones ("open loop"), beside the error of always predicting the mean action. All ranks take part and get the same
// numbers, whatever their count.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/loader.hpp"
#include "worker/distributed/ddp.hpp"
#include "worker/distributed/process_group.hpp"
#include "worker/policies/normalizer.hpp"
#include "worker/policies/policy.hpp"

namespace vla {

// Errors of the chunks' steps that are not padding, in the dataset's units.
struct ActionErrors {
  double policy = 0, policy_rmse = 0;  // mean |predicted - demonstrated|, root of the mean square
  double mean_action = 0, mean_action_rmse = 0;  // the same of always the dataset's mean action
};

struct Evaluation {
  double loss = 0;  // eval mode, mean over frames
  int64_t frames = 0;
  ActionErrors all = {};  // over all dimensions
  std::vector<ActionErrors> dimensions = {};
};

// Reads `steps` micro-batches from `loader`. `mean_action` [action_dim]. Leaves the module in eval mode.
Evaluation evaluate(cxxrun::DistributedDataParallel<Policy>& policy, const Normalizer& normalizer, const at::Tensor& mean_action,
                    data::Loader& loader, int64_t steps, const cxxrun::World& world);

// The dtype of a model's inputs: that of its parameters, the widest where they differ.
at::ScalarType input_dtype(const Policy& policy);

}  // namespace vla
