#include "worker/policies/nn/folded_convolution.hpp"

#include <torch/torch.h>

#include "worker/cuda/fold_pixels.hpp"
#include "worker/policies/nn/channel_affine.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

at::Tensor folded_pixels(const at::Tensor& images) {
  const at::Tensor in = channels_last(images);
  const FoldPixels of{.images = in.size(0), .height = in.size(2), .width = in.size(3)};
  const at::Tensor out = at::empty({of.images, of.folded_height(), of.folded_width(), 16}, in.options());
  run_kernel(
      in, [&](cudaStream_t stream) { return fold_pixels_cuda(of, in_ptr(in), out_ptr(out), element_of(in), stream); },
      [&](auto element) {
        using T = decltype(element);
        for_each(of.images * of.folded_height(), [&](int64_t i) {
          for (int64_t place = 0; place < of.folded_width() * 4; ++place) {
            of.fold(in_ptr<T>(in), out_ptr<T>(out), i / of.folded_height(), i % of.folded_height(), place / 4, static_cast<int>(place % 4));
          }
        });
      });
  return out.permute({0, 3, 1, 2});
}

// [out, 3, 7, 7] -> [out, 16, 4, 4] with channels last; the gradient gets the weight's strides.
struct FoldWeight : torch::autograd::Function<FoldWeight> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& weight) {
    context->save_for_backward({weight});
    // [out, channel, y, row of 2, x, column of 2]
    const at::Tensor parts = at::constant_pad_nd(weight, {0, 1, 0, 1, 0, 1}).contiguous().view({-1, 4, 4, 2, 4, 2});
    return parts.permute({0, 2, 4, 3, 5, 1}).reshape({-1, 4, 4, 16}).permute({0, 3, 1, 2});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const at::Tensor parts = gradients[0].permute({0, 2, 3, 1}).reshape({-1, 4, 4, 2, 2, 4}).permute({0, 5, 1, 3, 2, 4});
    const at::Tensor whole = parts.reshape({-1, 4, 8, 8});
    return {at::empty_like(context->get_saved_variables()[0]).copy_(whole.slice(1, 0, 3).slice(2, 0, 7).slice(3, 0, 7))};
  }
};

}  // namespace

at::Tensor folded_convolution(const at::Tensor& images, const at::Tensor& weight) {
  TORCH_CHECK(images.dim() == 4 && images.size(1) == 3 && images.size(2) % 2 == 0 && images.size(3) % 2 == 0 && !images.requires_grad() &&
                  weight.sizes().slice(1) == at::IntArrayRef({3, 7, 7}),
              "images ", images.sizes(), " and a weight of ", weight.sizes(), " cannot be folded");
  return at::conv2d(folded_pixels(images), FoldWeight::apply(weight), {}, 1, /*padding=*/1);
}

}  // namespace vla
