// silu(gate) * up in one pass over memory each way: the middle of a gated MLP.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

// gate and up [..., width], perhaps the halves of one product's rows. What the kernel does not take is computed by ATen.
at::Tensor silu_mul(const at::Tensor& gate, const at::Tensor& up);

}  // namespace vla
