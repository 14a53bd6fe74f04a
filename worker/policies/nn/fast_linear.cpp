#include "worker/policies/nn/fast_linear.hpp"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/gradient_place.hpp"

namespace vla {
namespace {

struct FastLinear : torch::autograd::Function<FastLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["has_bias"] = bias.has_value();
    return at::linear(x, weight, bias);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradient) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor rows = gradient[0].reshape({-1, gradient[0].size(-1)});  // [N, out]
    at::Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) dx = at::matmul(gradient[0], weight);
    if (context->needs_input_grad(1)) dweight = weight_gradient(weight, rows.t(), x.reshape({-1, x.size(-1)}));
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) dbias = at::mm(at::ones({1, rows.size(0)}, rows.options()), rows).squeeze(0);
    return {dx, dweight, dbias};
  }
};

}  // namespace

at::Tensor fast_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const bool ours = fast_mode() && x.scalar_type() == weight.scalar_type() && !at::autocast::is_autocast_enabled(x.device().type()) &&
                    at::GradMode::is_enabled();
  return ours ? FastLinear::apply(x, weight, bias) : at::linear(x, weight, bias);
}

}  // namespace vla
