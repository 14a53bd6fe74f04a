// AdamW or Adam on LibTorch's fused kernels, with gradient clipping by global norm. Owns the moments of the parameters
// it is given, which it updates in place. Nothing here waits for a GPU. A parameter without a gradient is left alone,
// as in PyTorch. Used by one thread. Mismatching state throws Error listing names.
#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "worker/checkpoint/safetensors.hpp"
#include "worker/optim/options.hpp"
#include "worker/policies/policy.hpp"

namespace vla {

class Optimizer {
 public:
  Optimizer(const std::vector<ParameterGroup>& groups, const OptimizerOptions& options);

  // Learning rate of the coming step()s as a factor of each group's own. Call outside of a captured graph.
  void set_lr_factor(double factor);
  double lr() const { return options_.lr * factor_; }  // of groups without a rate of their own; what is logged

  // torch.nn.utils.clip_grad_norm_ over all parameters: scales by min(1, grad_clip_norm / (norm + 1e-6)). Returns the
  // norm before clipping, a scalar on the parameters' device.
  torch::Tensor clip_grad_norm();
  void step();
  void zero_grad();  // keeps the memory: gradients are views of DDP's buckets

  // "<parameter>.exp_avg", "<parameter>.exp_avg_sq" and "<parameter>.step" (float32 scalar): the live tensors.
  TensorMap state() const;
  void load_state(const TensorMap& state);

 private:
  struct Slot {
    std::string name;
    torch::Tensor parameter, exp_avg, exp_avg_sq, step;
  };
  // What one fused call may hold: one device, one dtype, one learning rate.
  struct Bucket {
    double lr = 0;
    torch::Tensor lr_on_device;  // float32 scalar; undefined on the CPU
    std::vector<Slot> slots;
  };

  std::vector<torch::Tensor> gradients() const;

  OptimizerOptions options_;
  double factor_ = 1;
  std::vector<Bucket> buckets_;
};

}  // namespace vla
