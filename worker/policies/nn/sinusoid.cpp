#include "worker/policies/nn/sinusoid.hpp"

#include <cmath>
#include <numbers>

#include <torch/torch.h>

namespace vla {
namespace {

// Interleaves sine of the even and cosine of the odd entries of the last dimension.
at::Tensor interleave(const at::Tensor& angle) {
  using at::indexing::None, at::indexing::Slice;
  return at::stack({angle.index({"...", Slice(0, None, 2)}).sin(), angle.index({"...", Slice(1, None, 2)}).cos()}, -1).flatten(-2);
}

// Exponents 2*(i/2)/dim.
at::Tensor exponents(int64_t dim, at::ScalarType dtype) {
  return 2 * at::arange(dim, dtype).div(2, "floor") / static_cast<double>(dim);
}

}  // namespace

at::Tensor sinusoid_table(int64_t positions, int64_t dim) {
  const at::Tensor position = at::arange(positions, at::kDouble).unsqueeze(1);
  return interleave(position / at::pow(10000.0, exponents(dim, at::kDouble))).to(at::kFloat);
}

at::Tensor sinusoid_grid(int64_t height, int64_t width, int64_t dim) {
  const auto axis = [&](int64_t size) {  // float32 [size, dim/2]
    const at::Tensor range = at::arange(1, size + 1, at::kFloat) / (static_cast<float>(size) + 1e-6f) * (2 * std::numbers::pi);
    return interleave(range.unsqueeze(1) / at::pow(10000.0, exponents(dim / 2, at::kFloat)));
  };
  const at::Tensor y = axis(height).unsqueeze(1).expand({height, width, dim / 2});
  const at::Tensor x = axis(width).unsqueeze(0).expand({height, width, dim / 2});
  return at::cat({y, x}, -1).view({height * width, dim});
}

}  // namespace vla
