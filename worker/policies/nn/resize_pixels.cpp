#include "worker/policies/nn/resize_pixels.hpp"

#include <algorithm>
#include <limits>

#include <torch/torch.h>

#include "worker/cuda/resize_pixel.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

void resize_camera(const at::Tensor& images, const at::Tensor& output) {
  TORCH_CHECK(output.size(2) * output.size(3) <= std::numeric_limits<int>::max() && images.size(2) * images.size(3) <= std::numeric_limits<int>::max(), "images of ",
              images.sizes(), " are too large");
  ResizePixels of;
  of.input = images.const_data_ptr();
  of.bytes = images.scalar_type() == at::kByte;
  of.output = output.mutable_data_ptr();
  std::ranges::copy(images.strides(), of.strides);
  of.images = images.size(0), of.channels = images.size(1), of.height = images.size(2), of.width = images.size(3);
  of.out_height = output.size(2), of.out_width = output.size(3);
  const double ratio = std::max(static_cast<double>(of.width) / static_cast<double>(of.out_width), static_cast<double>(of.height) / static_cast<double>(of.out_height));
  of.inner_height = static_cast<int64_t>(static_cast<double>(of.height) / ratio);
  of.inner_width = static_cast<int64_t>(static_cast<double>(of.width) / ratio);
  of.top = of.out_height - of.inner_height, of.left = of.out_width - of.inner_width;
  of.factor = 2, of.shift = -1;
  run_kernel(
      output, [&](cudaStream_t stream) { return resize_pixels_cuda(of, element_of(output), stream); },
      [&](auto element) {
        for_each(of.images, [&](int64_t image) {
          for (int place = 0; place < static_cast<int>(of.plane_size()); ++place) resize_pixels<decltype(element), 1>(of, image, place);
        });
      });
}

}  // namespace

at::Tensor resize_cameras(const std::vector<at::Tensor>& cameras, int64_t height, int64_t width, at::ScalarType dtype) {
  const at::Tensor& first = cameras.front();
  const auto count = static_cast<int64_t>(cameras.size()), rows = first.size(0);
  const at::Tensor output = at::empty({count * rows, first.size(1), height, width}, first.options().dtype(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor& camera = cameras[static_cast<size_t>(i)];
    TORCH_CHECK(camera.dim() == 4 && camera.size(0) == rows && camera.size(1) == first.size(1), "images ", camera.sizes(), " beside ", first.sizes());
    TORCH_CHECK(camera.scalar_type() == dtype || camera.scalar_type() == at::kByte, "images of ", camera.scalar_type(), " for ", dtype);
    resize_camera(camera, output.narrow(0, i * rows, rows));
  }
  return output;
}

}  // namespace vla
