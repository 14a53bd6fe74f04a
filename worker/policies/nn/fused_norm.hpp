// RMSNorm and LayerNorm together with the addition before them, in one pass over memory each way (norm_row.hpp). Takes float tensors of
// any size; what the kernels do not take (mixed dtypes, rows that are no multiple of eight, very wide ones) is computed by ATen.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace vla {

struct AddNorm {
  at::Tensor sum, normalized;
};

// x [..., width], added the same or undefined, weight [width]: sum = x + added, normalized = sum / rms(sum) * weight. Gradients for all.
AddNorm add_rms_norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, double eps);

// LayerNorm of x + offset, x [..., width], all others [width], offset perhaps undefined. No gradients.
at::Tensor offset_layer_norm(const at::Tensor& x, const at::Tensor& offset, const at::Tensor& weight, const at::Tensor& bias, double eps);

}  // namespace vla
