#include "worker/policies/nn/rotary.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/precision.hpp"

namespace vla {

RotaryTable rotary_table(const at::Tensor& positions, int64_t head_dim, double base) {
  const at::Tensor exponents = at::arange(head_dim / 2, positions.options().dtype(at::kFloat)) * (2.0 / static_cast<double>(head_dim));
  const at::Tensor angles = (positions.to(at::kFloat).unsqueeze(-1) / at::pow(base, exponents)).unsqueeze(2);
  return {angles.cos(), angles.sin()};
}

at::Tensor rotate(const at::Tensor& x, const RotaryTable& table) {
  const auto halves = at_least_float(x).chunk(2, -1);
  return at::cat({halves[0] * table.cos - halves[1] * table.sin, halves[1] * table.cos + halves[0] * table.sin}, -1).to(x.scalar_type());
}

}  // namespace vla
