// x W' + b. In fast mode on a GPU the bias's gradient is a product with a row of ones: LibTorch sums such tall matrices up with a kernel
// that reaches a fraction of the memory's speed.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

// x [..., in], weight [out, in], bias [out] -> [..., out].
at::Tensor biased_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace vla
