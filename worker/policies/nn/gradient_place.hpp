// Where a block that computes the gradient of a weight may write it: into the bucket in which it travels to the other ranks, instead of
// being copied there. One finder for the process, as backward runs on threads of its own.
#pragma once

#include <functional>

#include <torch/types.h>

namespace vla {

// For [out, in] `weight`: a tensor like it, to be given back as its gradient; undefined: there is none, or the gradient is to be added to one.
using FindGradientPlace = std::function<at::Tensor(const at::Tensor& weight)>;

// a [out, N] b [N, in] as the gradient of `weight` [out, in].
at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b);

// The process's finder, while it lives; set and reset while no backward runs.
class GradientPlaceScope {
 public:
  explicit GradientPlaceScope(FindGradientPlace find);
  GradientPlaceScope(const GradientPlaceScope&) = delete;
  GradientPlaceScope& operator=(const GradientPlaceScope&) = delete;
  ~GradientPlaceScope();
};

}  // namespace vla
