#include "worker/policies/diffusion/diffusion_policy.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/masked_error.hpp"

namespace vla {

DiffusionPolicy::DiffusionPolicy(const DiffusionOptions& options, const PolicyFeatures& features)
    : options_(options), features_(features), noise_(options.noise) {
  options_.validate(features_);
  torch::nn::Module* parent = this;
  if (!options_.is_original()) parent = register_module("diffusion", std::make_shared<torch::nn::Module>("diffusion")).get();
  encoder_ = std::make_unique<ObservationEncoder>(options_, features_, *parent);
  const Unet1dOptions unet{.channels = features_.outputs.at(0).shape.at(0), .condition_dim = encoder_->condition_dim(), .down_dims = options_.down_dims,
                           .kernel_size = options_.kernel_size, .groups = options_.n_groups, .step_embed_dim = options_.diffusion_step_embed_dim,
                           .scale_modulation = options_.use_film_scale_modulation,
                           .names = options_.is_original() ? UnetNames::kOriginal : UnetNames::kLeRobot};
  unet_ = parent->register_module(options_.is_original() ? "model" : "unet", std::make_shared<Unet1d>(unet));
  set_activation_checkpointing(false);
}

torch::Tensor DiffusionPolicy::counted_actions(const Batch& batch) const {
  return options_.do_mask_loss_for_padding ? valid_actions(batch) : batch.weight.unsqueeze(1).expand({-1, options_.horizon});
}

torch::Tensor DiffusionPolicy::loss_counts(const Batch& batch) const {
  return (counted_actions(batch).sum(at::kDouble) * static_cast<double>(batch.at("action").size(-1))).unsqueeze(0);
}

PolicyLoss DiffusionPolicy::compute_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& random) {
  static const uint32_t kNoise = random_stream("diffusion_noise"), kTimestep = random_stream("diffusion_timestep");
  const torch::Tensor& actions = batch.at("action");
  const torch::Tensor noise = random.normal(kNoise, actions.sizes().slice(1), actions.scalar_type());
  const int64_t steps = options_.noise.num_train_timesteps;
  const torch::Tensor timesteps =
      (random.uniform(kTimestep, {1}, at::kFloat).flatten() * static_cast<double>(steps)).to(at::kLong).clamp_max_(steps - 1);

  const torch::Tensor condition = encoder_->encode(batch, is_training() ? &random : nullptr, all_reduce_sum_);
  const torch::Tensor output = unet_->forward(noise_.add_noise(actions, noise, timesteps), timesteps, condition);
  if (fast_mode()) {
    const torch::Tensor is_pad = options_.do_mask_loss_for_padding ? batch.at("action_is_pad") : torch::Tensor();
    const torch::Tensor sum = masked_error_sum(output, noise_.target(actions, noise), batch.weight, is_pad, ErrorNorm::kSquared);
    return {sum / counts[0].clamp_min(1).to(sum.scalar_type()), {}};
  }
  // Sums of many small squares vanish in 16 bits.
  const at::ScalarType dtype = at::promote_types(output.scalar_type(), at::kFloat);
  const torch::Tensor error = (output.to(dtype) - noise_.target(actions, noise).to(dtype)).square();
  return {(error * counted_actions(batch).unsqueeze(-1)).sum() / counts[0].clamp_min(1).to(dtype), {}};
}

torch::Tensor DiffusionPolicy::sample_chunk(const Batch& batch, const StepRandom& random) {
  static const uint32_t kStart = random_stream("sample_start");
  const torch::NoGradGuard no_grad;
  const torch::Tensor condition = encoder_->encode(batch, nullptr, all_reduce_sum_);
  const std::vector<int64_t> shape{options_.horizon, features_.outputs.at(0).shape.at(0)};
  const int64_t steps = options_.num_inference_steps == 0 ? options_.noise.num_train_timesteps : options_.num_inference_steps;
  torch::Tensor x = random.normal(kStart, shape, condition.scalar_type());
  int64_t number = 0;
  for (const int64_t timestep : noise_.timesteps(steps)) {
    const torch::Tensor output = unet_->forward(x, at::full({x.size(0)}, timestep, batch.position.options()), condition);
    torch::Tensor noise;
    if (noise_.needs_noise(timestep)) noise = random.normal(random_stream("step_noise_" + std::to_string(number)), shape, x.scalar_type());
    x = noise_.step(output, timestep, steps, x, noise);
    ++number;
  }
  return x.slice(1, options_.n_obs_steps - 1, options_.n_obs_steps - 1 + options_.n_action_steps);
}

}  // namespace vla
