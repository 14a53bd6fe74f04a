#include "worker/policies/nn/flow_matching.hpp"

#include <torch/torch.h>

#include "worker/cuda/flow_element.hpp"
#include "worker/policies/nn/cuda_launch.hpp"

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
    if (velocity.is_cuda()) {
      launch_on(velocity, [&](cudaStream_t stream) { return flow_sums_cuda(of, sums.mutable_data_ptr<float>(), kernel_element(velocity.scalar_type()), stream); });
    } else {
      AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, velocity.scalar_type(), "flow_sums", [&] {
        for (int64_t row = 0; row < of.rows; ++row) flow_sums<scalar_t>(OneThread{}, of, row, sums.mutable_data_ptr<RealOf<scalar_t>>() + row * kFlowSums);
      });
    }
    return sums.sum(0);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &velocity = saved[0], scales = gradients[0].contiguous(), gradient = at::empty_like(velocity);
    const FlowLoss of = flow_loss(velocity, saved[1], saved[2], saved[3], saved[4]);
    if (velocity.is_cuda()) {
      launch_on(velocity, [&](cudaStream_t stream) {
        return flow_gradient_cuda(of, scales.const_data_ptr<float>(), gradient.mutable_data_ptr(), kernel_element(velocity.scalar_type()), stream);
      });
    } else {
      AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, velocity.scalar_type(), "flow_gradient", [&] {
        for (int64_t element = 0; element < velocity.numel(); ++element) {
          flow_gradient(of, scales.const_data_ptr<RealOf<scalar_t>>(), element, gradient.mutable_data_ptr<scalar_t>());
        }
      });
    }
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
  if (between.is_cuda()) {
    launch_on(between, [&](cudaStream_t stream) { return flow_between_cuda(of, kernel_element(between.scalar_type()), stream); });
    return between;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, between.scalar_type(), "flow_between", [&] {
    for (int64_t element = 0; element < between.numel(); ++element) flow_between<scalar_t>(of, element);
  });
  return between;
}

at::Tensor flow_loss_sums(const at::Tensor& velocity, const at::Tensor& actions, const at::Tensor& noise, const at::Tensor& is_pad, const at::Tensor& weight) {
  return FlowLossSums::apply(velocity.contiguous(), actions, noise, is_pad.contiguous(), weight.contiguous());
}

}  // namespace vla
