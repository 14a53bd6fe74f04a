// Diffusion policy: a U-Net learns to take noise off chunks of actions, given the observations, and samples them out of pure noise.
// Loss: squared error of the predicted noise (or actions), over all predicted steps or the valid ones. Random numbers, by their streams'
// names: "diffusion_noise" normal [B, horizon, action_dim]; "diffusion_timestep" uniform [B, 1], of which the timestep is the floor of
// num_train_timesteps times it; "diffusion_crop.<camera>" uniform; in sampling "sample_start" and, of the i-th step, "step_noise_<i>"
// normal [B, horizon, action_dim].
#pragma once

#include "worker/policies/diffusion/observation_encoder.hpp"
#include "worker/policies/nn/noise_scheduler.hpp"
#include "worker/policies/nn/unet1d.hpp"

namespace vla {

class DiffusionPolicy : public Policy {
 public:
  DiffusionPolicy(const DiffusionOptions& options, const PolicyFeatures& features);

  const PolicyOptions& options() const override { return options_; }
  const PolicyFeatures& features() const override { return features_; }
  torch::Tensor loss_counts(const Batch& batch) const override;  // [action elements]
  PolicyLoss compute_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& random) override;
  // n_action_steps actions, from the current observation's on.
  torch::Tensor sample_chunk(const Batch& batch, const StepRandom& random) override;
  bool is_batch_coupled() const override { return !options_.use_group_norm && !diffusion_inputs(features_).cameras.empty(); }
  void set_activation_checkpointing(bool on) override { unet_->checkpoint_blocks(on || options_.gradient_checkpointing); }
  void set_all_reduce_sum(AllReduceSum all_reduce_sum) override { all_reduce_sum_ = std::move(all_reduce_sum); }

  const ObservationEncoder& encoder() const { return *encoder_; }
  Unet1d& unet() { return *unet_; }

 private:
  torch::Tensor counted_actions(const Batch& batch) const;  // float [B, horizon or 1]

  DiffusionOptions options_;
  PolicyFeatures features_;
  NoiseScheduler noise_;
  AllReduceSum all_reduce_sum_;
  std::unique_ptr<ObservationEncoder> encoder_;
  std::shared_ptr<Unet1d> unet_;
};

}  // namespace vla
