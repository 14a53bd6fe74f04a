// Dynamic loss scaling for float16, with the rules of torch.amp.GradScaler: the loss is scaled up so that small gradients
// survive; an overflow leaves out the update and lowers the scale, a long run without raises it. All state is on the
// device, nothing here waits for it. Every rank has one; they agree as long as they see the same reduced gradients.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/checkpoint/safetensors.hpp"
#include "worker/optim/options.hpp"

namespace vla {

class GradScaler {
 public:
  GradScaler(const GradScalerOptions& options, at::Device device);

  // What backward() starts from.
  at::Tensor scale(const at::Tensor& loss) const { return loss.mul(scale_.to(loss.scalar_type())); }
  // Divides the gradients by the scale in place, once per step after the last backward and before clipping.
  void unscale(const std::vector<at::Tensor>& gradients);
  // float32 scalar: 1 if a gradient of the last unscale() was infinite or NaN, else 0. The optimizer takes it; ranks
  // whose gradients are not reduced may sum it first.
  at::Tensor& found_inf() { return found_inf_; }
  // After the optimizer's step.
  void update();

  const at::Tensor& current() const { return scale_; }  // float32 scalar

  // "scale" (float32 scalar) and "growth_tracker" (int32 scalar): the live tensors.
  TensorMap state() const { return {{"scale", scale_}, {"growth_tracker", growth_tracker_}}; }
  void load_state(const TensorMap& state);

 private:
  GradScalerOptions options_;
  at::Tensor scale_, growth_tracker_, found_inf_;
};

}  // namespace vla
