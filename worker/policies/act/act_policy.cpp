#include "worker/policies/act/act_policy.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/latent_sample.hpp"
#include "worker/policies/nn/masked_error.hpp"

namespace vla {
namespace {

// Sums of many small differences vanish in 16 bits.
torch::Tensor exact(const torch::Tensor& tensor) { return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(torch::kFloat) : tensor; }

torch::Tensor plain_latent(const torch::Tensor& posterior, const torch::Tensor& noise) {
  const auto halves = posterior.chunk(2, 1);
  return halves[0] + (halves[1] / 2).exp() * noise;
}

torch::Tensor plain_divergence(const torch::Tensor& posterior, const torch::Tensor& weight) {
  const auto halves = posterior.chunk(2, 1);
  const torch::Tensor mean = exact(halves[0]), log_variance = exact(halves[1]);
  const torch::Tensor divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1);
  return (divergence * weight).sum();
}

}  // namespace

ActPolicy::ActPolicy(const ActOptions& options, const PolicyFeatures& features) : options_(options), features_(features) {
  options_.validate(features_);
  model_ = register_module("model", std::make_shared<ActModel>(options_, features_));
  if (model_->backbone() && !options_.backbone_weights.empty() && options_.backbone_weights != "none") {
    model_->backbone()->load_torchvision(options_.backbone_weights);
  }
}

std::vector<ParameterGroup> ActPolicy::parameter_groups() {
  ParameterGroup rest{.name = "model", .lr = 0, .parameters = {}};
  ParameterGroup backbone{.name = "backbone", .lr = options_.optimizer_lr_backbone, .parameters = {}};
  for (const auto& entry : named_parameters()) {
    if (!entry.value().requires_grad()) continue;
    (entry.key().starts_with("model.backbone.") ? backbone : rest).parameters.emplace_back(entry.key(), entry.value());
  }
  std::vector<ParameterGroup> groups{std::move(rest)};
  if (!backbone.parameters.empty()) groups.push_back(std::move(backbone));
  return groups;
}

torch::Tensor ActPolicy::loss_counts(const Batch& batch) const {
  const double action_dim = static_cast<double>(batch.at("action").size(-1));
  return at::stack({valid_actions(batch).sum(at::kDouble) * action_dim, batch.weight.sum(at::kDouble)});
}

PolicyLoss ActPolicy::compute_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& step_random) {
  static const uint32_t kNoise = random_stream("vae_noise");
  const bool use_vae = is_training() && options_.use_vae;
  const StepRandom* random = is_training() ? &step_random : nullptr;
  torch::Tensor posterior;
  SampledLatent sample;
  if (use_vae) {
    posterior = model_->posterior(batch, random);
    const torch::Tensor noise = step_random.normal(kNoise, {options_.latent_dim}, batch.at("action").scalar_type());
    sample = fast_mode() ? sample_latent(posterior, noise, batch.weight) : SampledLatent{plain_latent(posterior, noise), {}};
  }
  const torch::Tensor predicted = model_->forward(batch, sample.latent, random);
  const torch::Tensor sum = fast_mode() ? masked_error_sum(predicted, batch.at("action"), batch.weight, batch.at("action_is_pad"), ErrorNorm::kAbsolute)
                                        : ((exact(batch.at("action")) - exact(predicted)).abs() * valid_actions(batch).unsqueeze(-1)).sum();
  const torch::Tensor denominators = counts.clamp_min(1).to(sum.scalar_type());
  const torch::Tensor l1 = sum / denominators[0];
  if (!use_vae) return {l1, {{"l1_loss", l1.detach()}}};
  // After the model, as in LeRobot: autograd adds gradients up in the opposite order.
  if (!sample.divergence.defined()) sample.divergence = plain_divergence(posterior, batch.weight);
  const torch::Tensor kld = sample.divergence / denominators[1];
  return {l1 + kld * options_.kl_weight, {{"l1_loss", l1.detach()}, {"kld_loss", kld.detach()}}};
}

torch::Tensor ActPolicy::sample_chunk(const Batch& batch, const StepRandom&) {
  const torch::NoGradGuard no_grad;
  return model_->forward(batch, {}, nullptr);
}

}  // namespace vla
