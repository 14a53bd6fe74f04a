#include "worker/policies/nn/group_norm_mish.hpp"

#include <torch/torch.h>

#include "worker/cuda/group_norm_mish.hpp"
#include "worker/cuda/team.hpp"
#include "worker/policies/nn/channel_affine.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

// The CPU's team.
struct OneOfGroup : OneThread {
  static constexpr int kPack = 1;
  int64_t channel() const { return 0; }
  int64_t channels_at_once() const { return 1; }
  int64_t step() const { return 0; }
  int64_t steps_at_once() const { return 1; }
  template <class R, int M, class F>
  void sum_steps(const R (&sums)[M][1], int kinds, int64_t, const F& f) const {
    for (int kind = 0; kind < kinds; ++kind) f(kind, 0, sums[kind][0]);
  }
};

struct NormKind {
  int64_t groups;
  double eps;
  bool mish, relu;
};

GroupNormMish norm_of(const at::Tensor& x, const at::Tensor& modulation, const NormKind& kind) {
  const int64_t channels = x.size(2);
  return {.rows = x.size(0), .steps = x.size(1), .channels = channels, .groups = kind.groups, .eps = kind.eps, .mish = kind.mish, .relu = kind.relu,
          .shifts = modulation.defined() && modulation.size(1) == channels, .scales = modulation.defined() && modulation.size(1) == 2 * channels};
}

// On a GPU `launch(norm, tensors, type, real_parameters, stream)`, else `loop(element, parameter)` with values of x's and gamma's C++ types.
template <class Launch, class Loop>
void run_norm(const GroupNormMish& norm, const at::Tensor& x, const at::Tensor& gamma, const GroupNormMishTensors& tensors, const Launch& launch,
              const Loop& loop) {
  const bool real_parameters = gamma.scalar_type() == sum_type(x);
  run_kernel(
      x, [&](cudaStream_t stream) { return launch(norm, tensors, element_of(x), real_parameters, stream); },
      [&](auto element) {
        using T = decltype(element);
        if (real_parameters) {
          loop(T{}, Real<T>{});
        } else {
          loop(T{}, T{});
        }
      });
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, const at::Tensor& gamma, const at::Tensor& beta,
                            const std::optional<at::Tensor>& scales, const std::optional<at::Tensor>& added, const NormKind& kind) {
    const at::Tensor modulation = scales.value_or(at::Tensor()), residual = added.value_or(at::Tensor());
    const at::Tensor x = input.contiguous();
    const GroupNormMish norm = norm_of(x, modulation, kind);
    const at::Tensor y = at::empty_like(x), mean = at::empty({norm.rows, norm.groups}, x.options().dtype(sum_type(x)));
    const at::Tensor inverse_std = at::empty_like(mean);
    const GroupNormMishTensors tensors{.x = in_ptr(x), .gamma = in_ptr(gamma), .beta = in_ptr(beta), .modulation = in_ptr(modulation),
                                       .residual = in_ptr(residual), .y = out_ptr(y), .mean = out_ptr(mean), .inverse_std = out_ptr(inverse_std)};
    run_norm(norm, x, gamma, tensors, group_norm_mish_forward_cuda, [&](auto element, auto parameter) {
      const auto of = tensors.forward<decltype(element), decltype(parameter)>();
      for_each(norm.rows * norm.groups, [&](int64_t i) { norm.forward(of, i / norm.groups, i % norm.groups, OneOfGroup{}); });
    });
    context->save_for_backward({x, gamma, beta, modulation, mean, inverse_std, kind.relu ? y : at::Tensor()});
    context->saved_data["groups"] = kind.groups;
    context->saved_data["mish"] = kind.mish;
    context->saved_data["residual"] = residual.defined();
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &gamma = saved[1], &beta = saved[2], &modulation = saved[3], &mean = saved[4], &inverse_std = saved[5], &y = saved[6];
    const at::Tensor gradient = gradients[0].to(x.scalar_type()).contiguous();
    const GroupNormMish norm = norm_of(x, modulation, {context->saved_data["groups"].toInt(), 0, context->saved_data["mish"].toBool(), y.defined()});
    const at::Tensor dx = at::empty_like(x), d_modulation = modulation.defined() ? at::empty_like(modulation) : at::Tensor();
    at::Tensor d_residual;
    if (context->saved_data["residual"].toBool()) d_residual = norm.relu ? at::empty_like(x) : gradient;
    const at::Tensor of_rows = at::empty({2, norm.rows, norm.channels}, x.options().dtype(sum_type(x)));
    const at::Tensor d_parameters = at::empty({2, norm.channels}, gamma.options());  // gamma's, beta's
    const GroupNormMishTensors tensors{.gradient = in_ptr(gradient), .x = in_ptr(x), .gamma = in_ptr(gamma), .beta = in_ptr(beta),
                                       .modulation = in_ptr(modulation), .y = out_ptr(y), .mean = out_ptr(mean), .inverse_std = out_ptr(inverse_std),
                                       .dx = out_ptr(dx), .d_residual = norm.relu ? out_ptr(d_residual) : nullptr, .d_modulation = out_ptr(d_modulation),
                                       .of_rows = out_ptr(of_rows), .d_parameters = out_ptr(d_parameters)};
    run_norm(norm, x, gamma, tensors, group_norm_mish_backward_cuda, [&](auto element, auto parameter) {
      const auto of = tensors.backward<decltype(element), decltype(parameter)>();
      for_each(norm.rows * norm.groups, [&](int64_t i) { norm.backward(of, i / norm.groups, i % norm.groups, OneOfGroup{}); });
      for_each(2 * norm.channels, [&](int64_t i) { norm.sum_rows(of, i); });
    });
    return {dx, d_parameters[0], d_parameters[1], d_modulation, d_residual, {}};
  }
};

at::Tensor apply_norm(const at::Tensor& x, const torch::nn::GroupNormImpl& norm, const at::Tensor& scales, const at::Tensor& residual, bool mish, bool relu) {
  TORCH_CHECK(x.dim() == 3 && x.size(2) == norm.weight.size(0) &&
                  (norm.weight.scalar_type() == x.scalar_type() || norm.weight.scalar_type() == sum_type(x)),
              "group norm: ", norm.weight.sizes(), " parameters of ", norm.weight.scalar_type(), " and ", x.sizes(), " of ", x.scalar_type());
  at::Tensor added;
  if (residual.defined()) {
    TORCH_CHECK(residual.sizes() == x.sizes(), "a residual must be like x");
    added = residual.to(x.scalar_type()).contiguous();
  }
  return NormFunction::apply(x, norm.weight, norm.bias, if_defined(scales), if_defined(added),
                             NormKind{norm.options.num_groups(), norm.options.eps(), mish, relu});
}

}  // namespace

at::Tensor group_norm_mish(const at::Tensor& x, const torch::nn::GroupNormImpl& norm, const at::Tensor& modulation, const at::Tensor& residual) {
  at::Tensor scales;
  if (modulation.defined()) {
    TORCH_CHECK(modulation.dim() == 2 && modulation.size(0) == x.size(0) && (modulation.size(1) == x.size(2) || modulation.size(1) == 2 * x.size(2)),
                "a condition of ", modulation.sizes(), " does not modulate ", x.sizes());
    scales = modulation.to(x.scalar_type()).contiguous();
  }
  return apply_norm(x, norm, scales, residual, /*mish=*/true, /*relu=*/false);
}

at::Tensor group_norm_relu(const at::Tensor& images, const torch::nn::GroupNormImpl& norm, const at::Tensor& residual, bool relu) {
  const auto pixels = [](const at::Tensor& of) { return of.defined() ? channels_last(of).permute({0, 2, 3, 1}).flatten(1, 2) : of; };
  const at::Tensor y = apply_norm(pixels(images), norm, {}, pixels(residual), /*mish=*/false, relu);
  return y.unflatten(1, {images.size(2), images.size(3)}).permute({0, 3, 1, 2});
}

}  // namespace vla
