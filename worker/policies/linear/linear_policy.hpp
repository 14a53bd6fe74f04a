// The smallest policy: a chunk of actions as a linear function of the robot's state, trained on l1 or squared error. An example of
// the interface, and what tests train when the policy does not matter.
#pragma once

#include <string>

#include <torch/nn/modules/linear.h>

#include "worker/policies/policy.hpp"

namespace vla {

class LinearOptions : public PolicyOptions {
 public:
  int64_t chunk_size = 8;
  int64_t n_action_steps = 8;
  std::string loss = "mse";
  double optimizer_lr = 1e-2;

  void describe(cxxrun::OptionTable& table) override;
  void validate(const PolicyFeatures& features) const override;
  OptimizerOptions optimizer_preset() const override;
  data::SampleRequest sample_request(const PolicyFeatures& features) const override;
  std::map<data::FeatureType, NormalizationMode> normalization() const override;
};

class LinearPolicy : public Policy {
 public:
  LinearPolicy(const LinearOptions& options, const PolicyFeatures& features);

  const PolicyOptions& options() const override { return options_; }
  const PolicyFeatures& features() const override { return features_; }
  torch::Tensor loss_counts(const Batch& batch) const override;  // [valid action elements]
  PolicyLoss compute_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& random) override;
  torch::Tensor sample_chunk(const Batch& batch, const StepRandom& random) override;

 private:
  torch::Tensor forward(const Batch& batch);

  LinearOptions options_;
  PolicyFeatures features_;
  torch::nn::Linear head_{nullptr};
};

}  // namespace vla
