// Images [N, C, H, W] with channels last, scaled and shifted by channel, in one kernel with what follows (worker/cuda). Gradients flow to
// x and the residual; scale and shift are constants: Real [C], float64 for float64 images and else float32.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

// x * scale + shift (+ residual, or undefined), through a relu if told.
at::Tensor channel_affine(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual, bool relu);

// max_pool2d(relu(x * scale + shift), 3, 2, 1).
at::Tensor affine_relu_pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift);

// The same without autograd, for norms with a backward of their own.
at::Tensor channel_affine_forward(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual, bool relu);

// As the kernels read images; every row of [N * H * W, C] in one piece.
at::Tensor channels_last(const at::Tensor& images);

}  // namespace vla
