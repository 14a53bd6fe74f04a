#include "worker/color_ops.hpp"

#include <numbers>

#include <torch/torch.h>

namespace vla {
namespace {

// [B] -> [B, 1, ...] of the images' rank and dtype.
at::Tensor per_image(const at::Tensor& factor, const at::Tensor& images) {
  std::vector<int64_t> shape(static_cast<size_t>(images.dim()), 1);
  shape[0] = factor.size(0);
  return factor.to(images.scalar_type()).view(shape);
}

at::Tensor grayscale(const at::Tensor& images) {  // [..., 1, H, W]
  const auto rgb = images.split(1, -3);
  return (rgb[0] * 0.2989).add_(rgb[1], 0.587).add_(rgb[2], 0.114);
}

at::Tensor blend(const at::Tensor& images, const at::Tensor& other, const at::Tensor& ratio) {
  return (images * ratio).add_(other * (1 - ratio)).clamp_(0, 1);
}

}  // namespace

at::Tensor adjust_brightness(const at::Tensor& images, const at::Tensor& factor) {
  return (images * per_image(factor, images)).clamp_(0, 1);
}

at::Tensor adjust_contrast(const at::Tensor& images, const at::Tensor& factor) {
  return blend(images, grayscale(images).mean({-3, -2, -1}, /*keepdim=*/true), per_image(factor, images));
}

at::Tensor adjust_saturation(const at::Tensor& images, const at::Tensor& factor) {
  return blend(images, grayscale(images), per_image(factor, images));
}

at::Tensor adjust_hue(const at::Tensor& images, const at::Tensor& factor) {
  const auto rgb = images.split(1, -3);
  const at::Tensor low = images.amin(-3, true), value = images.amax(-3, true), range = value - low;
  const at::Tensor divisor = at::where(range == 0, 1, range);
  const at::Tensor saturation = range / at::where(value == 0, 1, value);
  const at::Tensor hue6 = at::where(value == rgb[0], (rgb[1] - rgb[2]) / divisor,
                                    at::where(value == rgb[1], 2 + (rgb[2] - rgb[0]) / divisor, 4 + (rgb[0] - rgb[1]) / divisor));
  const at::Tensor shifted = (hue6 / 6 + per_image(factor, images)).remainder_(1).mul_(6);
  // A channel is v - v*s*clamp(min(k, 4 - k), 0, 1) with k = (n + hue6) mod 6 and n = 5, 3, 1 for r, g, b: the hexagon of HSV
  // without a table of cases.
  const at::Tensor chroma = value * saturation;
  std::vector<at::Tensor> channels;
  for (const int n : {5, 3, 1}) {
    const at::Tensor k = (shifted + n).fmod_(6);
    channels.push_back(value - chroma * at::minimum(k, 4 - k).clamp_(0, 1));
  }
  return at::empty_like(images).copy_(at::cat(channels, -3)).clamp_(0, 1);
}

at::Tensor adjust_sharpness(const at::Tensor& images, const at::Tensor& factor) {
  const int64_t height = images.size(-2), width = images.size(-1);
  if (height <= 2 || width <= 2) return images.clone();
  // The 3x3 mean with weight 5 in the middle, as box sums: sum of nine plus four times the middle, over 13.
  const auto shifted = [&](int64_t dim, int64_t by, const at::Tensor& x) { return x.narrow(dim, by, x.size(dim) - 2); };
  const at::Tensor rows = shifted(-2, 0, images) + shifted(-2, 1, images) + shifted(-2, 2, images);
  const at::Tensor middle = shifted(-1, 1, shifted(-2, 1, images));
  const at::Tensor blurred = (shifted(-1, 0, rows) + shifted(-1, 1, rows) + shifted(-1, 2, rows)).add_(middle, 4).div_(13);
  at::Tensor output = images.clone();  // the border stays
  output.narrow(-2, 1, height - 2).narrow(-1, 1, width - 2).add_((blurred - middle) * (1 - per_image(factor, images)));
  return output.clamp_(0, 1);
}

at::Tensor affine(const at::Tensor& images, const at::Tensor& degrees, const at::Tensor& shift_x, const at::Tensor& shift_y) {
  const int64_t height = images.size(-2), width = images.size(-1), frames = images.dim() == 5 ? images.size(1) : 1;
  const auto column = [&](const at::Tensor& value) { return value.to(images.scalar_type()).view({-1, 1, 1}); };
  const at::Tensor angle = column(degrees) * (std::numbers::pi / 180);
  const at::Tensor cosine = angle.cos(), sine = angle.sin();
  const auto centred = [&](int64_t size) {
    const double end = 0.5 * static_cast<double>(size - 1);
    return at::linspace(-end, end, size, images.options());
  };
  // Where each output pixel comes from: the inverse of "rotate, then shift".
  const at::Tensor x = centred(width).view({1, 1, -1}) - column(shift_x), y = centred(height).view({1, -1, 1}) - column(shift_y);
  const at::Tensor from_x = (cosine * x + sine * y) / (0.5 * static_cast<double>(width));
  const at::Tensor from_y = (cosine * y - sine * x) / (0.5 * static_cast<double>(height));
  const at::Tensor grid = at::stack({from_x, from_y}, -1);  // [B, H, W, 2]
  const at::Tensor batch = images.flatten(0, -4);
  const at::Tensor moved = at::grid_sampler_2d(batch, frames == 1 ? grid : grid.repeat_interleave(frames, 0), /*nearest*/ 1, /*zeros*/ 0,
                                               /*align_corners=*/false);
  return at::empty_like(images).copy_(moved.view(images.sizes()));
}

at::Tensor add_noise(const at::Tensor& images, const at::Tensor& noise, const at::Tensor& factor) {
  return (images + noise * per_image(factor, images)).clamp_(0, 1);
}

}  // namespace vla
