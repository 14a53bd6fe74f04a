// Losses of chunks of actions and a diffusion model's noise, each in one kernel (worker/cuda/masked_error.hpp).
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

enum class ErrorNorm { kAbsolute, kSquared };

// The sum of errors that count: prediction [B, steps, dim], which gets the gradient, target the same; weight float32 [B]; is_pad bool
// [B, steps] or undefined. float32 [], or float64 of float64 tensors.
at::Tensor masked_error_sum(const at::Tensor& prediction, const at::Tensor& target, const at::Tensor& weight, const at::Tensor& is_pad, ErrorNorm norm);

// sqrt(a) * clean + sqrt(1 - a) * noise with a = alphas[timestep of the row]: clean, noise [B, ...] of one dtype, alphas float32
// [timesteps], timesteps int64 [B]. No gradient.
at::Tensor noisy_by_timestep(const at::Tensor& clean, const at::Tensor& noise, const at::Tensor& alphas, const at::Tensor& timesteps);

}  // namespace vla
