#include "worker/policies/nn/unfold_steps.hpp"

#include <torch/torch.h>

#include "worker/cuda/unfold_steps.hpp"
#include "worker/policies/nn/device_kernel.hpp"
#include "worker/policies/nn/fast_linear.hpp"

namespace vla {
namespace {

// x [rows, steps, channels] -> [rows, out_steps, kernel * channels]
at::Tensor unfolded(const at::Tensor& steps, const UnfoldSteps& unfold) {
  const at::Tensor x = packed(steps);
  const at::Tensor windows = at::empty({unfold.rows, unfold.out_steps, unfold.kernel * unfold.channels}, x.options());
  run_kernel(
      x, [&](cudaStream_t stream) { return unfold_steps_cuda(unfold, in_ptr(x), out_ptr(windows), element_of(x), stream); },
      [&](auto element) {
        using T = decltype(element);
        for_each(unfold.windows(), [&](int64_t place) {
          for (int64_t channel = 0; channel < unfold.channels; ++channel) unfold.unfold<1>(in_ptr<T>(x), out_ptr<T>(windows), place, channel);
        });
      });
  return windows;
}

at::Tensor folded(const at::Tensor& side_by_side, const UnfoldSteps& unfold) {
  const at::Tensor windows = packed(side_by_side);
  const at::Tensor x = at::empty({unfold.rows, unfold.steps, unfold.channels}, windows.options());
  run_kernel(
      x, [&](cudaStream_t stream) { return fold_steps_cuda(unfold, in_ptr(windows), out_ptr(x), element_of(x), stream); },
      [&](auto element) {
        using T = decltype(element);
        for_each(unfold.rows * unfold.steps, [&](int64_t at) {
          for (int64_t channel = 0; channel < unfold.channels; ++channel) unfold.fold<1>(in_ptr<T>(windows), out_ptr<T>(x), at, channel);
        });
      });
  return x;
}

std::vector<int64_t> numbers_of(const UnfoldSteps& unfold) {
  return {unfold.rows, unfold.steps, unfold.out_steps, unfold.channels, unfold.kernel, unfold.stride, unfold.padding};
}

UnfoldSteps unfold_of(const std::vector<int64_t>& n) {
  return {.rows = n[0], .steps = n[1], .out_steps = n[2], .channels = n[3], .kernel = n[4], .stride = n[5], .padding = n[6]};
}

// Each is the other's backward.
template <at::Tensor (*kForward)(const at::Tensor&, const UnfoldSteps&), at::Tensor (*kBackward)(const at::Tensor&, const UnfoldSteps&)>
struct LinearMap : torch::autograd::Function<LinearMap<kForward, kBackward>> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const UnfoldSteps& unfold) {
    context->saved_data["unfold"] = numbers_of(unfold);
    return kForward(x, unfold);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    return {kBackward(gradients[0], unfold_of(context->saved_data["unfold"].toIntVector())), {}};
  }
};

// [a, b, kernel] -> [a, kernel * b], without a copy if it is stored so.
at::Tensor as_matrix(const at::Tensor& weight) {
  if (weight.size(2) == 1) return weight.flatten(1);  // its gradient gets the strides that are usual
  return weight.permute({0, 2, 1}).reshape({weight.size(0), -1});
}

}  // namespace

at::Tensor convolve_steps(const at::Tensor& x, const torch::nn::Conv1dImpl& convolution) {
  const auto& options = convolution.options;
  TORCH_CHECK(options.groups() == 1 && options.dilation()->at(0) == 1, "only plain convolutions are matrix products here");
  const int64_t kernel = options.kernel_size()->at(0), stride = options.stride()->at(0);
  const auto* paddings = std::get_if<torch::ExpandingArray<1>>(&options.padding());
  TORCH_CHECK(paddings != nullptr, "the padding must be a number");
  const int64_t padding = (*paddings)->at(0);
  const UnfoldSteps unfold{.rows = x.size(0), .steps = x.size(1), .out_steps = (x.size(1) + 2 * padding - kernel) / stride + 1,
                           .channels = x.size(2), .kernel = kernel, .stride = stride, .padding = padding};
  const bool is_pointwise = kernel == 1 && stride == 1 && padding == 0;
  const at::Tensor windows = is_pointwise ? x : LinearMap<unfolded, folded>::apply(x, unfold);
  return fast_linear(windows, as_matrix(convolution.weight), convolution.bias);
}

at::Tensor convolve_steps(const at::Tensor& x, const torch::nn::ConvTranspose1dImpl& convolution) {
  const auto& options = convolution.options;
  TORCH_CHECK(options.groups() == 1 && options.dilation()->at(0) == 1 && options.output_padding()->at(0) == 0,
              "only plain convolutions are matrix products here");
  const int64_t kernel = options.kernel_size()->at(0), stride = options.stride()->at(0);
  const int64_t padding = std::get<torch::ExpandingArray<1>>(options.padding())->at(0);
  const UnfoldSteps unfold{.rows = x.size(0), .steps = (x.size(1) - 1) * stride - 2 * padding + kernel, .out_steps = x.size(1),
                           .channels = convolution.weight.size(1), .kernel = kernel, .stride = stride, .padding = padding};
  return LinearMap<folded, unfolded>::apply(at::matmul(x, as_matrix(convolution.weight)), unfold) + convolution.bias;
}

at::Tensor stored_for_products(const at::Tensor& weight) { return weight.permute({0, 2, 1}).contiguous().permute({0, 2, 1}); }

}  // namespace vla
