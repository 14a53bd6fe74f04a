// Bytes of images to normalized numbers in one pass (worker/cuda/image_bytes.hpp), with the bits that step by step gives.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

// uint8 [..., C, H, W], quickest with channels last, -> the same of `dtype` with channels last: (image / 255 - shift) / divisor + offset. shift
// and divisor [C, 1, 1] or both undefined: image / 255.
at::Tensor images_from_bytes(const at::Tensor& bytes, const at::Tensor& shift, const at::Tensor& divisor, double offset, at::ScalarType dtype);

}  // namespace vla
