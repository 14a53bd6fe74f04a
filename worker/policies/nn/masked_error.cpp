#include "worker/policies/nn/masked_error.hpp"

#include <torch/torch.h>

#include "worker/cuda/masked_error.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

MaskedError error_of(const at::Tensor& prediction, const at::Tensor& weight, const at::Tensor& is_pad, bool squares) {
  return {.rows = prediction.size(0), .steps = prediction.size(1), .dim = prediction.size(2), .squares = squares, .weight = in_ptr<float>(weight),
          .is_pad = in_ptr<bool>(is_pad)};
}

struct ErrorSum : torch::autograd::Function<ErrorSum> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& prediction, const at::Tensor& target, const at::Tensor& weight,
                            const std::optional<at::Tensor>& pads, bool squares) {
    const at::Tensor is_pad = pads.value_or(at::Tensor()), sums = at::empty({prediction.size(0)}, prediction.options().dtype(sum_type(prediction)));
    const MaskedError error = error_of(prediction, weight, is_pad, squares);
    run_kernel(
        prediction,
        [&](cudaStream_t stream) {
          return masked_error_sums_cuda(error, in_ptr(prediction), in_ptr(target), out_ptr(sums), element_of(prediction), stream);
        },
        [&](auto element) {
          using T = decltype(element);
          for_each(error.rows, [&](int64_t row) { out_ptr<Real<T>>(sums)[row] = error.sum(in_ptr<T>(prediction), in_ptr<T>(target), row, 0, 1); });
        });
    context->save_for_backward({prediction, target, weight, is_pad});
    context->saved_data["squares"] = squares;
    return sums.sum();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &prediction = saved[0], &target = saved[1], gradient = at::empty_like(prediction);
    const at::Tensor scale = gradients[0].to(sum_type(prediction));
    const MaskedError error = error_of(prediction, saved[2], saved[3], context->saved_data["squares"].toBool());
    run_kernel(
        prediction,
        [&](cudaStream_t stream) {
          return masked_error_gradient_cuda(error, in_ptr(prediction), in_ptr(target), in_ptr(scale), out_ptr(gradient), element_of(prediction), stream);
        },
        [&](auto element) {
          using T = decltype(element);
          for_each(prediction.numel(), [&](int64_t i) {
            out_ptr<T>(gradient)[i] =
                error.gradient(in_ptr<T>(prediction), in_ptr<T>(target), *in_ptr<Real<T>>(scale), i / error.row_size(), i % error.row_size());
          });
        });
    return {gradient, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor masked_error_sum(const at::Tensor& prediction, const at::Tensor& target, const at::Tensor& weight, const at::Tensor& is_pad, ErrorNorm norm) {
  TORCH_CHECK(prediction.dim() == 3 && target.sizes() == prediction.sizes() && weight.dim() == 1 && weight.size(0) == prediction.size(0) &&
                  weight.scalar_type() == at::kFloat && weight.device() == prediction.device(),
              "errors of ", prediction.sizes(), " and ", target.sizes(), " with weights ", weight.sizes());
  if (is_pad.defined()) {
    TORCH_CHECK(is_pad.sizes() == prediction.sizes().slice(0, 2) && is_pad.scalar_type() == at::kBool, "padding ", is_pad.sizes(), " of ", prediction.sizes());
  }
  const at::ScalarType dtype = at::promote_types(prediction.scalar_type(), target.scalar_type());
  return ErrorSum::apply(prediction.to(dtype).contiguous(), target.to(dtype).contiguous(), weight.contiguous(),
                         is_pad.defined() ? std::optional(is_pad.contiguous()) : std::nullopt, norm == ErrorNorm::kSquared);
}

at::Tensor noisy_by_timestep(const at::Tensor& clean_actions, const at::Tensor& noise_like, const at::Tensor& alphas, const at::Tensor& timesteps) {
  const at::Tensor clean = clean_actions.contiguous(), noise = noise_like.to(clean.scalar_type()).contiguous(), noisy = at::empty_like(clean);
  TORCH_CHECK(noise.sizes() == clean.sizes() && timesteps.size(0) == clean.size(0) && timesteps.is_contiguous() && timesteps.scalar_type() == at::kLong &&
                  alphas.scalar_type() == at::kFloat && alphas.is_contiguous(),
              "noise ", noise.sizes(), " and timesteps ", timesteps.sizes(), " of ", clean.sizes());
  const AddNoise add{.rows = clean.size(0), .row_size = clean.numel() / std::max<int64_t>(1, clean.size(0)), .timesteps = alphas.size(0),
                     .alphas = in_ptr<float>(alphas), .timestep = in_ptr<int64_t>(timesteps)};
  run_kernel(
      clean, [&](cudaStream_t stream) { return add_noise_cuda(add, in_ptr(clean), in_ptr(noise), out_ptr(noisy), element_of(clean), stream); },
      [&](auto element) {
        using T = decltype(element);
        for_each(clean.numel(), [&](int64_t i) { out_ptr<T>(noisy)[i] = add.noisy(in_ptr<T>(clean), in_ptr<T>(noise), i); });
      });
  return noisy;
}

}  // namespace vla
