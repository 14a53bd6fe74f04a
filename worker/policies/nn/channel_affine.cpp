#include "worker/policies/nn/channel_affine.hpp"

#include <limits>

#include <torch/torch.h>

#include "worker/cuda/affine_pool.hpp"
#include "worker/cuda/channel_affine.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

void check_constants(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) {
  TORCH_CHECK(x.dim() == 4 && x.numel() < std::numeric_limits<uint32_t>::max(), "images must be [N, C, H, W] of less than 2^32 numbers, not ", x.sizes());
  for (const at::Tensor& constant : {scale, shift}) {
    TORCH_CHECK(constant.dim() == 1 && constant.size(0) == x.size(1) && constant.is_contiguous() && constant.scalar_type() == sum_type(x) &&
                    constant.device() == x.device(),
                "scale and shift must be [", x.size(1), "] like the images");
  }
}

ChannelAffine affine_of(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, bool relu) {
  return {.pixels = x.size(0) * x.size(2) * x.size(3), .channels = x.size(1), .relu = relu, .scale = in_ptr(scale), .shift = in_ptr(shift)};
}

AffinePool pool_of(at::IntArrayRef sizes, const at::Tensor& scale, const at::Tensor& shift) {
  return {.images = sizes[0], .height = sizes[2], .width = sizes[3], .channels = sizes[1], .scale = in_ptr(scale), .shift = in_ptr(shift)};
}

struct AffineFunction : torch::autograd::Function<AffineFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                            const std::optional<at::Tensor>& added, bool relu) {
    const at::Tensor residual = added.value_or(at::Tensor());
    const at::Tensor y = channel_affine_forward(x, scale, shift, residual, relu);
    context->save_for_backward({scale, relu ? y : at::Tensor()});
    context->saved_data["relu"] = relu;
    context->saved_data["residual"] = residual.defined();
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = channels_last(gradients[0]), &scale = saved[0], &y = saved[1];
    const at::Tensor dx = at::empty_like(gradient);
    const bool has_residual = context->saved_data["residual"].toBool(), relu = context->saved_data["relu"].toBool();
    // Without a relu the residual's gradient is the output's.
    const at::Tensor d_residual = has_residual ? (relu ? at::empty_like(gradient) : gradient) : at::Tensor();
    const ChannelAffine affine = affine_of(gradient, scale, scale, relu);
    run_kernel(
        gradient,
        [&](cudaStream_t stream) {
          return channel_affine_backward_cuda(affine, in_ptr(gradient), in_ptr(y), out_ptr(dx), relu ? out_ptr(d_residual) : nullptr,
                                              element_of(gradient), stream);
        },
        [&](auto element) {
          using T = decltype(element);
          for_each(affine.channels, [&](int64_t channel) {
            affine.backward<1>(in_ptr<T>(gradient), in_ptr<T>(y), out_ptr<T>(dx), relu ? out_ptr<T>(d_residual) : nullptr, channel, 0, 1);
          });
        });
    return {dx, {}, {}, d_residual, {}};
  }
};

struct AffinePoolFunction : torch::autograd::Function<AffinePoolFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& images, const at::Tensor& scale,
                            const at::Tensor& shift) {
    check_constants(images, scale, shift);
    const at::Tensor x = channels_last(images);
    const AffinePool pool = pool_of(x.sizes(), scale, shift);
    const at::Tensor y = at::empty({pool.images, pool.channels, pool.out_height(), pool.out_width()}, x.options(), at::MemoryFormat::ChannelsLast);
    const at::Tensor chosen = at::empty_like(y, y.options().dtype(at::kByte));
    run_kernel(
        x,
        [&](cudaStream_t stream) {
          return affine_pool_forward_cuda(pool, in_ptr(x), out_ptr(y), out_ptr<uint8_t>(chosen), element_of(x), stream);
        },
        [&](auto element) {
          using T = decltype(element);
          for_each(pool.channels, [&](int64_t channel) {
            pool.forward<1>(in_ptr<T>(x), out_ptr<T>(y), out_ptr<uint8_t>(chosen), channel, 0, 1);
          });
        });
    context->save_for_backward({scale, chosen});
    context->saved_data["sizes"] = x.sizes().vec();
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = channels_last(gradients[0]), &scale = saved[0], &chosen = saved[1];
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const AffinePool pool = pool_of(sizes, scale, scale);
    const at::Tensor dx = at::empty(sizes, gradient.options(), at::MemoryFormat::ChannelsLast);
    run_kernel(
        gradient,
        [&](cudaStream_t stream) {
          return affine_pool_backward_cuda(pool, in_ptr(gradient), in_ptr<uint8_t>(chosen), out_ptr(dx), element_of(gradient), stream);
        },
        [&](auto element) {
          using T = decltype(element);
          for_each(pool.channels, [&](int64_t channel) {
            pool.backward<1>(in_ptr<T>(gradient), in_ptr<uint8_t>(chosen), out_ptr<T>(dx), channel, 0, 1);
          });
        });
    return {dx, {}, {}};
  }
};

}  // namespace

at::Tensor channels_last(const at::Tensor& images) { return packed(images, at::MemoryFormat::ChannelsLast); }

at::Tensor channel_affine_forward(const at::Tensor& images, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& added, bool relu) {
  check_constants(images, scale, shift);
  const at::Tensor x = channels_last(images);
  at::Tensor residual;
  if (added.defined()) {
    TORCH_CHECK(added.sizes() == x.sizes() && added.device() == x.device(), "a residual must be like the images");
    residual = channels_last(added.to(x.scalar_type()));
  }
  const at::Tensor y = at::empty_like(x);
  const ChannelAffine affine = affine_of(x, scale, shift, relu);
  run_kernel(
      x,
      [&](cudaStream_t stream) {
        return channel_affine_forward_cuda(affine, in_ptr(x), in_ptr(residual), out_ptr(y), element_of(x), stream);
      },
      [&](auto element) {
        using T = decltype(element);
        for_each(affine.channels, [&](int64_t channel) {
            affine.forward<1>(in_ptr<T>(x), in_ptr<T>(residual), out_ptr<T>(y), channel, 0, 1);
          });
      });
  return y;
}

at::Tensor channel_affine(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual, bool relu) {
  return AffineFunction::apply(x, scale, shift, if_defined(residual), relu);
}

at::Tensor affine_relu_pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) {
  return AffinePoolFunction::apply(x, scale, shift);
}

}  // namespace vla
