// Convolutions over time as matrix products, for activations [B, steps, channels]: with few steps and many channels the weights are what
// has to be read, and a product reads them once. Own kernels lay the windows side by side (worker/cuda/unfold_steps.hpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/conv.h>

namespace vla {

// x [B, steps, in] -> [B, out_steps, out]: convolution.forward() of the transposed tensors.
at::Tensor convolve_steps(const at::Tensor& x, const torch::nn::Conv1dImpl& convolution);
at::Tensor convolve_steps(const at::Tensor& x, const torch::nn::ConvTranspose1dImpl& convolution);

// The weight of such a convolution as its product needs it: the same shape, the second dimension innermost. A weight that is stored
// otherwise is copied in every step.
at::Tensor stored_for_products(const at::Tensor& weight);

}  // namespace vla
