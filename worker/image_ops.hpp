// Geometry of images on their device: resize, crop, pad, to float. Images are [..., C, H, W] with any leading dimensions, float or
// uint8; the strides (channels last or not) carry over. All functions return new tensors and wait for nothing. uint8 images are
// resized in float32 and rounded.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

// uint8 [...] -> float32 in [0, 1], with the CPU's rounding on every device. Floating images are returned as they are.
at::Tensor images_to_float(const at::Tensor& images);

// torch.nn.functional.interpolate(mode="bilinear", align_corners=False, antialias=antialias).
at::Tensor resize_bilinear(const at::Tensor& images, int64_t height, int64_t width, bool antialias = false);

// Keeps the aspect ratio: the size is truncated, the rest padded with `value`. kLeftTop is SmolVLA's rule, kCentre openpi's.
enum class PadPlace { kLeftTop, kCentre };
at::Tensor resize_with_pad(const at::Tensor& images, int64_t height, int64_t width, PadPlace place, double value = 0, bool antialias = false);

// torchvision's CenterCrop of an image that is at least as large.
at::Tensor centre_crop(const at::Tensor& images, int64_t height, int64_t width);

// Windows [.., height, width] at `top` and `left`, int64 [1] or [B] (B = the first dimension of images [B, (T,) C, H, W]), on the
// images' device.
at::Tensor crop_at(const at::Tensor& images, const at::Tensor& top, const at::Tensor& left, int64_t height, int64_t width);

// Places of a window from uniform numbers in [0, 1): int64, uniform over 0 ... (image - window).
at::Tensor crop_offsets(const at::Tensor& uniform, int64_t image, int64_t window);

}  // namespace vla
