// The noise of a diffusion model: how much of it there is at each timestep, what the model learns, and the way back from pure noise.
// Schedules, DDPM (Ho et al. 2020) and DDIM with eta 0 (Song et al. 2021) as diffusers 0.39 computes them, with "leading" spacing and
// the variance "fixed_small". Holds no random numbers. Immutable but for a cache of its table on the device: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace vla {

struct NoiseSchedulerOptions {
  std::string type = "DDPM";  // or "DDIM"
  int64_t num_train_timesteps = 100;
  std::string beta_schedule = "squaredcos_cap_v2";  // or "linear", "scaled_linear", which begin and end as follows
  double beta_start = 1e-4, beta_end = 0.02;
  std::string prediction_type = "epsilon";  // the model's output: the noise, or "sample" without it
  bool clip_sample = true;
  double clip_sample_range = 1;
};

class NoiseScheduler {
 public:
  explicit NoiseScheduler(const NoiseSchedulerOptions& options);

  const at::Tensor& alphas_cumprod() const { return alphas_cumprod_; }  // float32 [num_train_timesteps], on the CPU

  // `clean` and `noise` float [B, ...], timesteps int64 [B], all on one device.
  at::Tensor add_noise(const at::Tensor& clean, const at::Tensor& noise, const at::Tensor& timesteps) const;
  const at::Tensor& target(const at::Tensor& clean, const at::Tensor& noise) const;  // of the model's output

  std::vector<int64_t> timesteps(int64_t steps) const;  // of sampling in `steps` steps, descending to 0
  bool needs_noise(int64_t timestep) const { return !is_ddim_ && timestep > 0; }
  // One step of sampling in `steps` steps: from x at `timestep`, with the model's output there, to x at the next. `noise` is standard
  // normal like x, and not used unless needed.
  at::Tensor step(const at::Tensor& output, int64_t timestep, int64_t steps, const at::Tensor& x, const at::Tensor& noise) const;

 private:
  float alpha_cumprod(int64_t timestep) const;  // 1 before the first timestep

  NoiseSchedulerOptions options_;
  bool is_ddim_, predicts_sample_;
  at::Tensor alphas_cumprod_;
  mutable at::Tensor on_device_;  // the same where add_noise was called last
};

}  // namespace vla
