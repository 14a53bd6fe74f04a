// Dtypes inside a model whose parameters are of several: sums and exponentials are not for 16 bits.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

// float32 in place of 16-bit numbers.
inline at::Tensor at_least_float(const at::Tensor& x) { return at::isReducedFloatingType(x.scalar_type()) ? x.to(at::kFloat) : x; }

}  // namespace vla
