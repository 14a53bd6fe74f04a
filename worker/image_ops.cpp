#include "worker/image_ops.hpp"

#include <algorithm>

#include <torch/torch.h>

namespace vla {
namespace {

// [..., C, H, W] -> [N, C, H, W]
at::Tensor as_batch(const at::Tensor& images) {
  TORCH_CHECK(images.dim() >= 3, "images must be [..., C, H, W], not ", images.sizes());
  return images.dim() == 3 ? images.unsqueeze(0) : images.flatten(0, -4);
}

at::Tensor with_leading_dims_of(const at::Tensor& batch, const at::Tensor& images) {
  if (images.dim() == 3) return batch.squeeze(0);
  return images.dim() == 4 ? batch : batch.unflatten(0, images.sizes().slice(0, images.dim() - 3));
}

}  // namespace

at::Tensor images_to_float(const at::Tensor& images) {
  if (images.is_floating_point()) return images;
  // The divisor is a tensor because CUDA multiplies by the reciprocal of a plain number, which rounds differently.
  return images.to(at::kFloat).div_(at::full({}, 255.0f, images.options().dtype(at::kFloat)));
}

at::Tensor resize_bilinear(const at::Tensor& images, int64_t height, int64_t width, bool antialias) {
  if (images.size(-2) == height && images.size(-1) == width) return images;
  const bool is_float = images.is_floating_point();
  at::Tensor batch = as_batch(images);
  if (!is_float) batch = batch.to(at::kFloat);
  batch = antialias ? at::_upsample_bilinear2d_aa(batch, {height, width}, /*align_corners=*/false)
                    : at::upsample_bilinear2d(batch, {height, width}, /*align_corners=*/false);
  if (!is_float) batch = batch.round_().clamp_(0, 255).to(images.scalar_type());
  return with_leading_dims_of(batch, images);
}

at::Tensor resize_with_pad(const at::Tensor& images, int64_t height, int64_t width, PadPlace place, double value, bool antialias) {
  if (images.size(-2) == height && images.size(-1) == width) return images;
  const auto image_height = static_cast<double>(images.size(-2)), image_width = static_cast<double>(images.size(-1));
  const double ratio = std::max(image_width / static_cast<double>(width), image_height / static_cast<double>(height));
  const auto inner_height = static_cast<int64_t>(image_height / ratio), inner_width = static_cast<int64_t>(image_width / ratio);
  const at::Tensor batch = as_batch(resize_bilinear(images, inner_height, inner_width, antialias));
  const int64_t rows = std::max<int64_t>(0, height - inner_height), columns = std::max<int64_t>(0, width - inner_width);
  const int64_t top = place == PadPlace::kLeftTop ? rows : rows / 2, left = place == PadPlace::kLeftTop ? columns : columns / 2;
  return with_leading_dims_of(at::constant_pad_nd(batch, {left, columns - left, top, rows - top}, value), images);
}

at::Tensor centre_crop(const at::Tensor& images, int64_t height, int64_t width) {
  const int64_t rows = images.size(-2) - height, columns = images.size(-1) - width;
  TORCH_CHECK(rows >= 0 && columns >= 0, "a window of ", height, "x", width, " does not fit into images of ", images.sizes());
  // torchvision: int(round(rows / 2)), and Python rounds halves to even.
  const auto half = [](int64_t n) { return n / 2 + (n % 4 == 3 ? 1 : 0); };
  return images.narrow(-2, half(rows), height).narrow(-1, half(columns), width);
}

at::Tensor crop_at(const at::Tensor& images, const at::Tensor& top, const at::Tensor& left, int64_t height, int64_t width) {
  TORCH_CHECK(height <= images.size(-2) && width <= images.size(-1), "a window of ", height, "x", width, " does not fit into images of ",
              images.sizes());
  const at::Tensor batch = as_batch(images);
  const int64_t count = batch.size(0);
  const auto options = at::TensorOptions(at::kLong).device(images.device());
  // A sample's frames share its offset.
  const auto indices = [&](const at::Tensor& offset, int64_t size) {
    at::Tensor per_image = offset.size(0) == 1 ? offset : offset.repeat_interleave(count / offset.size(0), 0, count);
    return per_image.unsqueeze(1) + at::arange(size, options);  // [N or 1, size]
  };
  // The indexed dimensions come together at the front: [N, height, width, C], which is channels last as it stands.
  const at::Tensor windows = batch.permute({0, 2, 3, 1}).index(
      {at::arange(count, options).view({-1, 1, 1}), indices(top, height).unsqueeze(2), indices(left, width).unsqueeze(1)});
  const at::Tensor result = windows.permute({0, 3, 1, 2});
  return with_leading_dims_of(batch.is_contiguous(at::MemoryFormat::ChannelsLast) ? result : result.contiguous(), images);
}

at::Tensor crop_offsets(const at::Tensor& uniform, int64_t image, int64_t window) {
  const int64_t places = image - window + 1;
  // Rounding may lift a number just below 1 to the number of places.
  return (uniform * static_cast<double>(places)).to(at::kLong).clamp_max_(places - 1);
}

}  // namespace vla
