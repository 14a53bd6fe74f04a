// Images for a vision tower in one pass over memory: resized with their aspect ratio kept, padded at the left and top with black, scaled.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace vla {

// Each [B, C, H, W] with any strides, of `dtype` in [0, 1] or uint8, of which 255 is 1 -> [cameras * B, C, height, width] of `dtype`:
// 2 * resize_with_pad(image, kLeftTop) - 1. No gradient.
at::Tensor resize_cameras(const std::vector<at::Tensor>& cameras, int64_t height, int64_t width, at::ScalarType dtype);

}  // namespace vla
