#include "worker/optim/optimizer.hpp"

#include <algorithm>

#include <torch/torch.h>

namespace vla {

Optimizer::Optimizer(const std::vector<ParameterGroup>& groups, const OptimizerOptions& options) : options_(options) {
  for (const ParameterGroup& group : groups) {
    const size_t first = buckets_.size();
    for (const auto& [name, parameter] : group.parameters) {
      const auto fits = [&p = parameter](const Bucket& bucket) {
        const torch::Tensor& other = bucket.slots.front().parameter;
        return other.device() == p.device() && other.scalar_type() == p.scalar_type();
      };
      auto bucket = std::find_if(buckets_.begin() + static_cast<ptrdiff_t>(first), buckets_.end(), fits);
      if (bucket == buckets_.end()) {
        buckets_.push_back({.lr = group.lr > 0 ? group.lr : options.lr, .lr_on_device = {}, .slots = {}});
        bucket = buckets_.end() - 1;
        if (parameter.is_cuda())
          bucket->lr_on_device = torch::full({}, bucket->lr, parameter.options().dtype(torch::kFloat));
      }
      bucket->slots.push_back({name, parameter, torch::zeros_like(parameter), torch::zeros_like(parameter),
                               torch::zeros({}, parameter.options().dtype(torch::kFloat))});
    }
  }
}

void Optimizer::set_lr_factor(double factor) {
  factor_ = factor;
  for (Bucket& bucket : buckets_) {
    if (bucket.lr_on_device.defined()) bucket.lr_on_device.fill_(bucket.lr * factor);
  }
}

std::vector<torch::Tensor> Optimizer::gradients() const {
  std::vector<torch::Tensor> gradients;
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) {
      if (slot.parameter.grad().defined()) gradients.push_back(slot.parameter.grad());
    }
  }
  return gradients;
}

torch::Tensor Optimizer::clip_grad_norm() {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> grads = gradients();
  if (grads.empty()) return torch::zeros({});
  const torch::Tensor norm = torch::linalg_vector_norm(torch::stack(at::_foreach_norm(grads, 2)), 2);
  if (options_.grad_clip_norm > 0) at::_foreach_mul_(grads, (options_.grad_clip_norm / (norm + 1e-6)).clamp_max(1));
  return norm;
}

void Optimizer::step() {
  const torch::NoGradGuard no_grad;
  const OptimizerOptions& o = options_;
  for (const Bucket& bucket : buckets_) {
    std::vector<torch::Tensor> parameters, grads, exp_avgs, exp_avg_sqs, steps;
    for (const Slot& slot : bucket.slots) {
      const torch::Tensor& grad = slot.parameter.grad();
      if (!grad.defined()) continue;
      // The kernels walk memory, not indices.
      TORCH_CHECK(
          grad.strides() == slot.parameter.strides() || (grad.is_contiguous() && slot.parameter.is_contiguous()),
          "gradient of ", slot.name, " is laid out unlike its parameter");
      parameters.push_back(slot.parameter);
      grads.push_back(grad);
      exp_avgs.push_back(slot.exp_avg);
      exp_avg_sqs.push_back(slot.exp_avg_sq);
      steps.push_back(slot.step);
    }
    if (parameters.empty()) continue;
    at::_foreach_add_(steps, 1);
    const auto update = [&](const auto& lr) {
      if (o.type == "adam") {
        at::_fused_adam_(parameters, grads, exp_avgs, exp_avg_sqs, {}, steps, lr, o.beta1, o.beta2, o.weight_decay,
                         o.eps, false, false);
      } else {
        at::_fused_adamw_(parameters, grads, exp_avgs, exp_avg_sqs, {}, steps, lr, o.beta1, o.beta2, o.weight_decay,
                          o.eps, false, false);
      }
    };
    // On the GPU the rate is read from memory, so that a captured graph sees later changes; the CPU kernel takes it in
    // full precision.
    if (bucket.lr_on_device.defined()) {
      update(bucket.lr_on_device);
    } else {
      update(bucket.lr * factor_);
    }
  }
}

void Optimizer::zero_grad() {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> grads = gradients();
  if (!grads.empty()) at::_foreach_zero_(grads);
}

TensorMap Optimizer::state() const {
  TensorMap state;
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) {
      state[slot.name + ".exp_avg"] = slot.exp_avg;
      state[slot.name + ".exp_avg_sq"] = slot.exp_avg_sq;
      state[slot.name + ".step"] = slot.step;
    }
  }
  return state;
}

void Optimizer::load_state(const TensorMap& state) {
  copy_by_name(state, this->state(), "the optimizer's state does not fit the policy");
}

}  // namespace vla
