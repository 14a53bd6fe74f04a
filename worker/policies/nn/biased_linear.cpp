#include "worker/policies/nn/biased_linear.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"

namespace vla {
namespace {

struct BiasedLinear : torch::autograd::Function<BiasedLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    context->save_for_backward({x, weight});
    return at::linear(x, weight, bias);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradient) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor rows = gradient[0].reshape({-1, gradient[0].size(-1)});  // [N, out]
    at::Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) dx = at::matmul(gradient[0], weight);
    if (context->needs_input_grad(1)) dweight = at::mm(rows.t(), x.reshape({-1, x.size(-1)}));
    if (context->needs_input_grad(2)) dbias = at::mm(at::ones({1, rows.size(0)}, rows.options()), rows).squeeze(0);
    return {dx, dweight, dbias};
  }
};

}  // namespace

at::Tensor biased_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const bool ours = fast_mode() && x.is_cuda() && x.scalar_type() == weight.scalar_type() && !at::autocast::is_autocast_enabled(at::kCUDA) &&
                    at::GradMode::is_enabled();
  return ours ? BiasedLinear::apply(x, weight, bias) : at::linear(x, weight, bias);
}

}  // namespace vla
