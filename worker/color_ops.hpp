// Adjustments of images as torchvision.transforms.v2.functional defines them (0.26), batched: `factor` is [B], one for each
// sample, on the images' device. Images are float [B, (T,) 3, H, W] in [0, 1]; results are new tensors in [0, 1] with the same
// strides. A factor of 1 (hue and noise: 0) leaves brightness, contrast, saturation, sharpness and noise exactly as they were.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

at::Tensor adjust_brightness(const at::Tensor& images, const at::Tensor& factor);
at::Tensor adjust_contrast(const at::Tensor& images, const at::Tensor& factor);
at::Tensor adjust_saturation(const at::Tensor& images, const at::Tensor& factor);
at::Tensor adjust_hue(const at::Tensor& images, const at::Tensor& factor);  // -0.5 ... 0.5 turns of the colour circle
at::Tensor adjust_sharpness(const at::Tensor& images, const at::Tensor& factor);

// Rotation by `degrees` about the centre, then a shift in pixels; nearest neighbour, black outside. All [B].
at::Tensor affine(const at::Tensor& images, const at::Tensor& degrees, const at::Tensor& shift_x, const at::Tensor& shift_y);

// images + noise * factor, where noise is standard normal, like images.
at::Tensor add_noise(const at::Tensor& images, const at::Tensor& noise, const at::Tensor& factor);

}  // namespace vla
