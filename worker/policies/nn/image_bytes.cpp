#include "worker/policies/nn/image_bytes.hpp"

#include <torch/torch.h>

#include "worker/cuda/image_bytes.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {

at::Tensor images_from_bytes(const at::Tensor& bytes, const at::Tensor& shift, const at::Tensor& divisor, double offset, at::ScalarType dtype) {
  const int64_t channels = bytes.size(-3);
  TORCH_CHECK(bytes.scalar_type() == at::kByte && shift.defined() == divisor.defined() && (!shift.defined() || shift.numel() == channels),
              "images ", bytes.sizes(), " of ", bytes.scalar_type());
  const at::Tensor in = bytes.movedim(-3, -1).contiguous(), out = at::empty(in.sizes(), in.options().dtype(dtype));
  const auto constant = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(in.device(), sum_type(out)).contiguous() : tensor; };
  const at::Tensor shifts = constant(shift), divisors = constant(divisor);
  const ImageBytes of{.pixels = in.numel() / channels, .channels = channels, .shift = in_ptr(shifts), .divisor = in_ptr(divisors), .offset = offset};
  run_kernel(
      out, [&](cudaStream_t stream) { return image_bytes_cuda(of, in_ptr<uint8_t>(in), out_ptr(out), element_of(out), stream); },
      [&](auto element) {
        using T = decltype(element);
        for_each(of.pixels, [&](int64_t pixel) {
          for (int64_t c = 0; c < channels; ++c) out_ptr<T>(out)[pixel * channels + c] = of.value<T>(in_ptr<uint8_t>(in)[pixel * channels + c], c);
        });
      });
  return out.movedim(-1, -3);
}

}  // namespace vla
