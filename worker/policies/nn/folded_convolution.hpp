// A ResNet's first convolution on pixels folded 2x2 (worker/cuda/fold_pixels.hpp): 16 channels suit tensor cores, of three most of their work
// is on zeros.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

// conv2d(images, weight, stride 2, padding 3): images [N, 3, H, W] of even sides, without gradient; weight [out, 3, 7, 7].
at::Tensor folded_convolution(const at::Tensor& images, const at::Tensor& weight);

}  // namespace vla
