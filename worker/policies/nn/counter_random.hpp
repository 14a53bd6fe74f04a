// Counter-based random numbers: every value is a pure function of (seed, step, stream, position of the sample in the global
// batch, element), so that noise and dropout do not depend on the number of ranks, micro-batches or threads, nor on the device.
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11), the same integers on CPU and CUDA.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>

namespace vla {

struct CounterFill;

// Names a use of randomness inside a step ("vae_noise", "encoder.layers.0.dropout"): a hash of the text, fixed at construction.
uint32_t random_stream(std::string_view name);

class StepRandom {
 public:
  // `position` int64 [B] on the batch's device. `step_on_device`: int64 scalar there, which is read instead of `step` where it is
  // given, whenever numbers are drawn: a captured graph draws those of the step at which it runs.
  StepRandom(uint64_t seed, int64_t step, at::Tensor position, at::Tensor step_on_device = {})
      : seed_(seed), step_(step), position_(std::move(position)), step_on_device_(std::move(step_on_device)) {}

  // `values`, [B, shape...], are given for the stream of this name instead of drawn ones: recorded numbers of a reference.
  void replace(std::string_view name, at::Tensor values) { replaced_[random_stream(name)] = std::move(values); }

  // Of what all rows of the global batch share: one row, at position 0.
  StepRandom for_batch() const;

  // [B, shape...]: standard normal (Box-Muller), uniform in [0, 1).
  at::Tensor normal(uint32_t stream, at::IntArrayRef shape, at::ScalarType dtype) const;
  at::Tensor uniform(uint32_t stream, at::IntArrayRef shape, at::ScalarType dtype) const;
  // Keeps an element with probability 1-p and scales it by 1/(1-p). `batch_dim` says which dimension of `x` holds the rows; the mask
  // is that of the tensor with the rows moved to the front, so it does not depend on the layout of x's batch dimension.
  at::Tensor dropout(const at::Tensor& x, double p, uint32_t stream, int64_t batch_dim) const;

  // What kernels that draw by themselves are told.
  uint64_t seed() const { return seed_; }
  int64_t step() const { return step_; }
  const at::Tensor& position() const { return position_; }
  const at::Tensor& step_on_device() const { return step_on_device_; }

 private:
  at::Tensor draw(CounterFill fill, at::IntArrayRef shape, at::ScalarType dtype) const;

  uint64_t seed_;
  int64_t step_;
  at::Tensor position_, step_on_device_;
  std::map<uint32_t, at::Tensor> replaced_;  // by stream
};

}  // namespace vla
