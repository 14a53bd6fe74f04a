// AdamW or Adam on LibTorch's fused kernels, with gradient clipping by global norm. Owns the moments of the parameters
// it is given, which it updates in place, and float32 copies of 16-bit ones. An update that is to be left out is left
// out by the kernels: nothing here waits for a GPU. A parameter without a gradient is left alone, as in PyTorch. Used by
// one thread. Mismatching state throws Error listing names.
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

  std::vector<torch::Tensor> gradients() const;  // of the parameters that have one

  // torch.nn.utils.clip_grad_norm_ over all parameters: scales by min(1, grad_clip_norm / (norm + 1e-6)). Returns the
  // norm before clipping, a scalar on the parameters' device. With loss scaling, unscale the gradients first.
  torch::Tensor clip_grad_norm();
  // Where `found_inf` (float32 scalar, of GradScaler) is not 0, or where the last clip_grad_norm() was infinite or NaN,
  // parameters, moments and step counts stay as they are.
  void step(const torch::Tensor& found_inf = {});
  void zero_grad();  // keeps the memory: gradients are views of DDP's buckets

  // How many updates were left out since this was made: float32 scalar on the parameters' device.
  const torch::Tensor& skipped_steps() const { return skipped_; }

  // "<parameter>.exp_avg", "<parameter>.exp_avg_sq", "<parameter>.step" (float32 scalar) and, of 16-bit parameters with
  // master weights, "<parameter>.master": the live tensors.
  TensorMap state() const;
  // After the weights were loaded. State of a run without master weights, or with them, may continue the other way.
  void load_state(const TensorMap& state);

 private:
  struct Slot {
    std::string name;
    torch::Tensor parameter, exp_avg, exp_avg_sq, step;
    torch::Tensor master;  // float32; undefined where the parameter itself is updated
  };
  // What one fused call may hold: one device, one dtype, one learning rate.
  struct Bucket {
    double lr = 0;
    torch::Tensor lr_on_device;  // float32 scalar; undefined on the CPU
    std::vector<Slot> slots;
  };

  torch::Tensor to_skip(const torch::Tensor& found_inf) const;
  void step(const Bucket& bucket, const torch::Tensor& skip);

  OptimizerOptions options_;
  double factor_ = 1;
  std::vector<Bucket> buckets_;
  torch::Tensor norm_;  // of the last clip_grad_norm()
  torch::Tensor skipped_;
};

}  // namespace vla
