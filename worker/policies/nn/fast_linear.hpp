// x W' + b. In fast mode the bias's gradient is a product with a row of ones: on a GPU LibTorch sums such tall matrices up
// with a kernel that reaches a fraction of the memory's speed. The weight's is written where it is reduced over the ranks (gradient_place.hpp).
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace vla {

// x [..., in], weight [out, in], bias [out] -> [..., out].
at::Tensor fast_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias = {});

}  // namespace vla
