// Group norms in one kernel with what follows them (worker/cuda/group_norm_mish.hpp).
#pragma once

#include <torch/nn/modules/normalization.h>

namespace vla {

// mish(norm(x)) of x float [B, steps, channels]. `modulation`: undefined; or [B, channels], which is added to every step; or [B, 2 * channels], of which
// the first half scales and the second is added. `residual`: undefined, or like x and added last.
at::Tensor group_norm_mish(const at::Tensor& x, const torch::nn::GroupNormImpl& norm, const at::Tensor& modulation, const at::Tensor& residual);

// norm(images) (+ residual, or undefined), through a relu if told: float [N, C, H, W], best with channels last, which the result has.
at::Tensor group_norm_relu(const at::Tensor& images, const torch::nn::GroupNormImpl& norm, const at::Tensor& residual, bool relu);

}  // namespace vla
