// A variational encoder's sample and its divergence from the standard normal distribution, one kernel forward and one backward
// (worker/cuda/latent_sample.hpp).
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

struct SampledLatent {
  at::Tensor latent;  // [B, dim], in the common dtype of parameters and noise
  at::Tensor divergence;  // of all rows together, float32 [] (float64 of float64)
};

// parameters [B, 2 * dim], which get gradients: means, then logarithms of variances; noise [B, dim]; weight float32 [B].
SampledLatent sample_latent(const at::Tensor& parameters, const at::Tensor& noise, const at::Tensor& weight);

}  // namespace vla
