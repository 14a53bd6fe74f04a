// ACT as a policy: the network plus its loss, l1 over the valid actions and kl_weight times the KL divergence of the latent
// (LeRobot 0.6.1, modeling_act.py). In eval mode, and to predict, the latent is zero and the loss is l1 alone.
#pragma once

#include "worker/policies/act/act_model.hpp"

namespace vla {

class ActPolicy : public Policy {
 public:
  ActPolicy(const ActOptions& options, const PolicyFeatures& features);

  const PolicyOptions& options() const override { return options_; }
  const PolicyFeatures& features() const override { return features_; }
  std::vector<ParameterGroup> parameter_groups() override;
  torch::Tensor loss_counts(const Batch& batch) const override;  // [valid action elements, rows]
  PolicyLoss compute_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& random) override;
  torch::Tensor sample_chunk(const Batch& batch, const StepRandom& random) override;
  void set_activation_checkpointing(bool on) override { model_->set_activation_checkpointing(on); }

  ActModel& model() { return *model_; }

 private:
  ActOptions options_;
  PolicyFeatures features_;
  std::shared_ptr<ActModel> model_;
};

}  // namespace vla
