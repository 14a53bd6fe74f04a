// Frozen weights laid out for fewer, larger products: several matrices that multiply the same input, one under the other. The copy is
// made when it is first asked for, and again when a source was written to or replaced. One thread.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace vla {

class PackedWeights {
 public:
  using Arrange = std::function<at::Tensor(const at::Tensor&)>;
  // The sources joined along their first dimension, in `dtype`, arranged, without gradient; those that need no change are given as they are.
  const at::Tensor& get(const std::vector<at::Tensor>& sources, at::ScalarType dtype, const Arrange& arrange = nullptr);

 private:
  bool is_current(const std::vector<at::Tensor>& sources, at::ScalarType dtype) const;

  std::vector<at::Tensor> sources_;  // kept, so that their addresses are not used again
  std::vector<int64_t> versions_;
  at::ScalarType dtype_ = at::kFloat;
  at::Tensor packed_;
};

// The dtype that products of a module with these weights are computed in: autocast's on their device, or their own.
at::ScalarType compute_dtype(const at::Tensor& weight);

bool is_frozen(const torch::nn::Module& module);  // none of its parameters learns

}  // namespace vla
