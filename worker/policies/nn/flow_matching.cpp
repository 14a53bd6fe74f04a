#include "worker/policies/nn/flow_matching.hpp"

#include <torch/torch.h>

#include "worker/cuda/flow_element.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

template <class Of>
Of flow_tensors(const at::Tensor& actions, const at::Tensor& noise) {
  TORCH_CHECK(noise.is_contiguous() && actions.is_contiguous() && noise.scalar_type() == (actions.scalar_type() == at::kDouble ? at::kDouble : at::kFloat) &&
                  noise.size(0) == actions.size(0) && noise.size(1) == actions.size(1) && noise.size(2) >= actions.size(2),
              "noise ", noise.sizes(), " does not fit actions ", actions.sizes());
  Of of;
  of.actions = actions.const_data_ptr();
  of.noise = noise.const_data_ptr();
  of.rows = noise.size(0);
  of.chunk = noise.size(1);
  of.action_dim = actions.size(2);
  of.dim = noise.size(2);
  return of;
}

FlowLoss flow_loss(const at::Tensor& velocity, const at::Tensor& actions, const at::Tensor& noise, const at::Tensor& is_pad, const at::Tensor& weight) {
  FlowLoss of = flow_tensors<FlowLoss>(actions, noise);
  TORCH_CHECK(velocity.sizes() == noise.sizes() && velocity.scalar_type() == actions.scalar_type() && is_pad.numel() == of.rows * of.chunk && weight.numel() == of.rows,
              "velocity ", velocity.sizes(), ", padding ", is_pad.sizes(), " and weights ", weight.sizes(), " do not fit noise ", noise.sizes());
  of.velocity = velocity.const_data_ptr();
  of.is_pad = is_pad.const_data_ptr<bool>();
  of.weight = weight.const_data_ptr<float>();
  return of;
}

struct FlowLossSums : torch::autograd::Function<FlowLossSums> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& velocity, const at::Tensor& actions, const at::Tensor& noise,
                            const at::Tensor& is_pad, const at::Tensor& weight) {
    context->save_for_backward({velocity, actions, noise, is_pad, weight});
    const FlowLoss of = flow_loss(velocity, actions, noise, is_pad, weight);
    const at::Tensor sums = at::empty({of.rows, kFlowSums}, noise.options());
    run_kernel(
        velocity, [&](cudaStream_t stream) { return flow_sums_cuda(of, out_ptr<float>(sums), element_of(velocity), stream); },
        [&](auto element) {
          using T = decltype(element);
          for_each(of.rows, [&](int64_t row) { flow_sums<T>(OneThread{}, of, row, out_ptr<Real<T>>(sums) + row * kFlowSums); });
        });
    return sums.sum(0);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &velocity = saved[0], scales = gradients[0].contiguous(), gradient = at::empty_like(velocity);
    const FlowLoss of = flow_loss(velocity, saved[1], saved[2], saved[3], saved[4]);
    run_kernel(
        velocity, [&](cudaStream_t stream) { return flow_gradient_cuda(of, in_ptr<float>(scales), out_ptr(gradient), element_of(velocity), stream); },
        [&](auto element) {
          using T = decltype(element);
          for_each(velocity.numel(), [&](int64_t i) { flow_gradient(of, in_ptr<Real<T>>(scales), i, out_ptr<T>(gradient)); });
        });
    return {gradient, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor flow_input(const at::Tensor& actions, const at::Tensor& noise, const at::Tensor& time) {
  FlowBetween of = flow_tensors<FlowBetween>(actions, noise);
  TORCH_CHECK(time.numel() == of.rows && time.is_contiguous() && time.scalar_type() == noise.scalar_type(), "times ", time.sizes(), " do not fit noise ", noise.sizes());
  const at::Tensor between = at::empty(noise.sizes(), actions.options());
  of.time = time.const_data_ptr();
  of.between = between.mutable_data_ptr();
  run_kernel(
      between, [&](cudaStream_t stream) { return flow_between_cuda(of, element_of(between), stream); },
      [&](auto element) { for_each(between.numel(), [&](int64_t i) { flow_between<decltype(element)>(of, i); }); });
  return between;
}

at::Tensor flow_loss_sums(const at::Tensor& velocity, const at::Tensor& actions, const at::Tensor& noise, const at::Tensor& is_pad, const at::Tensor& weight) {
  return FlowLossSums::apply(velocity.contiguous(), actions, noise, is_pad.contiguous(), weight.contiguous());
}

}  // namespace vla
