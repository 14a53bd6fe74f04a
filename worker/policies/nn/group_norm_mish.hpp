// mish(group_norm(x)) over [B, steps, channels] in one kernel (worker/cuda/group_norm_mish.hpp), with what follows it.
#pragma once

#include <torch/nn/modules/normalization.h>

namespace vla {

// x float [B, steps, channels]. `modulation`: undefined; or [B, channels], which is added to every step; or [B, 2 * channels], of which
// the first half scales and the second is added. `residual`: undefined, or like x and added last.
at::Tensor group_norm_mish(const at::Tensor& x, const torch::nn::GroupNormImpl& norm, const at::Tensor& modulation, const at::Tensor& residual);

}  // namespace vla
