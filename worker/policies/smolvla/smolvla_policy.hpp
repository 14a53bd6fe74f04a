// SmolVLA as a policy: batches to observations, and the loss of flow matching, the squared error of the velocity between noise and
// actions (LeRobot 0.6.1, modeling_smolvla.py). Noise is drawn as "flow_noise"; the flow's time is 0.999 u^(1/1.5) + 0.001 of a uniform u
// drawn as "flow_time", which has exactly the reference's distribution Beta(1.5, 1) * 0.999 + 0.001. Sampling starts from "sample_noise".
#pragma once

#include "worker/policies/smolvla/pretrained_vlm.hpp"
#include "worker/policies/smolvla/smolvla_model.hpp"

namespace vla {

class SmolVlaPolicy : public Policy {
 public:
  SmolVlaPolicy(const SmolVlaOptions& options, const PolicyFeatures& features);

  const PolicyOptions& options() const override { return options_; }
  const PolicyFeatures& features() const override { return features_; }
  torch::Tensor loss_counts(const Batch& batch) const override;  // [valid action elements, rows]
  PolicyLoss compute_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& random) override;
  torch::Tensor sample_chunk(const Batch& batch, const StepRandom& random) override;
  bool takes_image_bytes() const override;
  // Batches that bring "observation.language.tokens" and "observation.language.attention_mask", [B, L] each, need no tasks.
  void set_tasks(const std::vector<std::string>& texts) override;
  torch::Tensor frozen_features(FrozenLevel level, const Batch& batch) override;
  void set_activation_checkpointing(bool on) override { model_->transformers().set_activation_checkpointing(on); }

  // float32 means the mixed layout of policy.vlm_dtype.
  using Module::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

  SmolVlaModel& model() { return *model_; }
  SmolVlaObservation observe(const Batch& batch);

 private:
  void apply_layout();
  PolicyLoss fused_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& random);
  void observe_images(const Batch& batch, SmolVlaObservation& observation) const;

  SmolVlaOptions options_;
  PolicyFeatures features_;
  int64_t action_dim_ = 0, vocab_size_ = 0;
  std::shared_ptr<SmolVlaModel> model_;
  std::unique_ptr<TaskTokenizer> tokenizer_;  // made for the first texts
  TaskTokens tasks_;  // on the device of their last use; not part of the state dict
};

}  // namespace vla
