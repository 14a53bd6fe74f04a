#include "worker/policies/nn/noise_scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/masked_error.hpp"

namespace vla {
namespace {

// The schedule of Nichol and Dhariwal, "Improved denoising diffusion probabilistic models".
at::Tensor squared_cosine_betas(int64_t count) {
  const auto level = [&](int64_t i) {
    const double angle = (static_cast<double>(i) / static_cast<double>(count) + 0.008) / 1.008 * std::numbers::pi / 2;
    return std::cos(angle) * std::cos(angle);
  };
  std::vector<double> betas;
  for (int64_t i = 0; i < count; ++i) betas.push_back(std::min(1 - level(i + 1) / level(i), 0.999));
  return at::tensor(betas, at::kDouble).to(at::kFloat);
}

at::Tensor betas_of(const NoiseSchedulerOptions& options) {
  const auto linear = [&](double from, double to) { return torch::linspace(from, to, options.num_train_timesteps, at::kFloat); };
  if (options.beta_schedule == "linear") return linear(options.beta_start, options.beta_end);
  if (options.beta_schedule == "scaled_linear") return linear(std::sqrt(options.beta_start), std::sqrt(options.beta_end)).square();
  TORCH_CHECK(options.beta_schedule == "squaredcos_cap_v2", "unknown schedule of noise ", options.beta_schedule);
  return squared_cosine_betas(options.num_train_timesteps);
}

}  // namespace

NoiseScheduler::NoiseScheduler(const NoiseSchedulerOptions& options)
    : options_(options), is_ddim_(options.type == "DDIM"), predicts_sample_(options.prediction_type == "sample"),
      alphas_cumprod_(at::cumprod(1 - betas_of(options), 0)) {}

at::Tensor NoiseScheduler::add_noise(const at::Tensor& clean, const at::Tensor& noise, const at::Tensor& timesteps) const {
  if (!on_device_.defined() || on_device_.device() != clean.device()) on_device_ = alphas_cumprod_.to(clean.device());
  if (fast_mode()) return noisy_by_timestep(clean, noise, on_device_, timesteps);
  std::vector<int64_t> shape(static_cast<size_t>(clean.dim()), 1);
  shape[0] = timesteps.size(0);
  // 16 bits would leave the last timesteps no signal.
  const at::ScalarType dtype = at::promote_types(clean.scalar_type(), at::kFloat);
  const at::Tensor alpha = on_device_.index_select(0, timesteps).to(dtype).view(shape);
  return (alpha.sqrt() * clean + (1 - alpha).sqrt() * noise).to(clean.scalar_type());
}

const at::Tensor& NoiseScheduler::target(const at::Tensor& clean, const at::Tensor& noise) const { return predicts_sample_ ? clean : noise; }

std::vector<int64_t> NoiseScheduler::timesteps(int64_t steps) const {
  const int64_t stride = options_.num_train_timesteps / steps;
  std::vector<int64_t> result;
  for (int64_t i = steps - 1; i >= 0; --i) result.push_back(i * stride);
  return result;
}

float NoiseScheduler::alpha_cumprod(int64_t timestep) const {
  return timestep < 0 ? 1.0F : alphas_cumprod_.const_data_ptr<float>()[timestep];
}

at::Tensor NoiseScheduler::step(const at::Tensor& output, int64_t timestep, int64_t steps, const at::Tensor& x, const at::Tensor& noise) const {
  const float alpha = alpha_cumprod(timestep), beta = 1 - alpha;
  const float next_alpha = alpha_cumprod(timestep - options_.num_train_timesteps / steps), next_beta = 1 - next_alpha;
  const float root_alpha = std::sqrt(alpha), root_beta = std::sqrt(beta);

  at::Tensor clean = predicts_sample_ ? output : (x - root_beta * output) / root_alpha;
  if (is_ddim_) {
    // diffusers takes the noise before clipping.
    const at::Tensor direction = predicts_sample_ ? (x - root_alpha * clean) / root_beta : output;
    if (options_.clip_sample) clean = clean.clamp(-options_.clip_sample_range, options_.clip_sample_range);
    return std::sqrt(next_alpha) * clean + std::sqrt(next_beta) * direction;
  }
  if (options_.clip_sample) clean = clean.clamp(-options_.clip_sample_range, options_.clip_sample_range);
  const float step_alpha = alpha / next_alpha, step_beta = 1 - step_alpha;
  const at::Tensor mean = std::sqrt(next_alpha) * step_beta / beta * clean + std::sqrt(step_alpha) * next_beta / beta * x;
  if (!needs_noise(timestep)) return mean;
  return mean + std::sqrt(std::max(next_beta / beta * step_beta, 1e-20F)) * noise;
}

}  // namespace vla
