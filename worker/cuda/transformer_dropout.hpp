// Dropout of counter-based random numbers in one pass with its neighbours in a transformer: relu before it, or the sum and layer norm
// after it. The mask is that of CounterFill::Kind::kDropout for the same tensor [outer, rows, inner]; four elements share a draw, so
// `inner` is a multiple of four here. Launchers as in channel_affine.hpp.
#pragma once

#include <cmath>

#include <cuda_runtime_api.h>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

struct DropoutMask {
  CounterFill fill;
  bool drops = false;  // else everything is kept as it is
  uint32_t first_kept = 0;  // words below it are dropped
  double scale = 1;

  // Of a tensor without dropout, too: `fill` says its shape.
  explicit DropoutMask(const CounterFill& of) : fill(of), drops(of.drop_probability > 0) {
    if (!drops) return;
    first_kept = static_cast<uint32_t>(std::ceil(of.drop_probability * 4294967296.0));  // word / 2^32 >= p
    scale = 1 / (1 - of.drop_probability);
  }

  VLA_HOST_DEVICE int64_t tokens() const { return fill.outer * fill.rows; }  // of `inner` elements

  // 0 or the scale, of the four elements from 4 * block on of the token at outer * rows + row.
  template <class R>
  VLA_HOST_DEVICE Pack<R, 4> factors(int64_t token, int64_t block) const {
    Pack<R, 4> result = {{1, 1, 1, 1}};
    if (!drops) return result;
    const auto at = static_cast<uint32_t>(token), rows = static_cast<uint32_t>(fill.rows);
    const uint32_t row = at % rows, outer = at / rows;
    const auto of_row = static_cast<uint32_t>(outer * (fill.inner / 4) + block);
    const PhiloxBlock bits = philox4x32_10({{of_row, static_cast<uint32_t>(fill.position[row]), fill.current_step(), fill.stream}},
                                           static_cast<uint32_t>(fill.seed), static_cast<uint32_t>(fill.seed >> 32));
    for (int i = 0; i < 4; ++i) result.at[i] = bits.word[i] >= first_kept ? static_cast<R>(scale) : R{0};
    return result;
  }
};

// dropout(relu(x)) of four elements; backward needs what came out.
template <class T>
VLA_HOST_DEVICE void relu_dropout(const DropoutMask& mask, const T* x, T* y, int64_t token, int64_t block) {
  using R = Real<T>;
  const int64_t at = token * mask.fill.inner + 4 * block;
  auto values = load<4>(x + at);
  const auto factors = mask.factors<R>(token, block);
  for (int i = 0; i < 4; ++i) {
    const R value = static_cast<R>(values.at[i]);
    values.at[i] = static_cast<T>(factors.at[i] == 0 || value < 0 ? R{0} : value * factors.at[i]);
  }
  store<4>(y + at, values);
}

template <class T>
VLA_HOST_DEVICE void relu_dropout_backward(const DropoutMask& mask, const T* gradient, const T* y, T* dx, int64_t at) {
  using R = Real<T>;
  auto values = load<4>(gradient + at);
  const auto outputs = load<4>(y + at);
  for (int i = 0; i < 4; ++i) {
    values.at[i] = static_cast<T>(static_cast<R>(outputs.at[i]) <= 0 ? R{0} : static_cast<R>(values.at[i]) * static_cast<R>(mask.scale));
  }
  store<4>(dx + at, values);
}

// layer_norm(x + dropout(y)) of one token, by a team (team.hpp). `sum`, mean and inverse_std are for backward.
template <class T>
struct DropoutNorm {
  const T *x, *y;
  const T *gamma, *beta;
  T *sum, *out;
  Real<T> *mean, *inverse_std;
  Real<T> eps;
};

template <class T, class Team>
VLA_HOST_DEVICE void add_dropout_norm(const DropoutMask& mask, const DropoutNorm<T>& of, int64_t token, const Team& team) {
  using R = Real<T>;
  const int64_t first = token * mask.fill.inner, blocks = mask.fill.inner / 4;
  const R count = static_cast<R>(mask.fill.inner);
  R total = 0, squares = 0;
  for (int64_t block = team.lane(); block < blocks; block += team.lanes()) {
    auto values = load<4>(of.x + first + 4 * block);
    const auto added = load<4>(of.y + first + 4 * block);
    const auto factors = mask.factors<R>(token, block);
    for (int i = 0; i < 4; ++i) {
      values.at[i] = static_cast<T>(static_cast<R>(values.at[i]) + (factors.at[i] == 0 ? R{0} : static_cast<R>(added.at[i]) * factors.at[i]));
      total += static_cast<R>(values.at[i]);
    }
    store<4>(of.sum + first + 4 * block, values);
  }
  const R mean = team.sum(total) / count;
  for (int64_t block = team.lane(); block < blocks; block += team.lanes()) {
    const auto values = load<4>(of.sum + first + 4 * block);
    for (int i = 0; i < 4; ++i) squares += (static_cast<R>(values.at[i]) - mean) * (static_cast<R>(values.at[i]) - mean);
  }
  const R inverse_std = 1 / std::sqrt(team.sum(squares) / count + of.eps);
  if (team.lane() == 0) {
    of.mean[token] = mean;
    of.inverse_std[token] = inverse_std;
  }
  for (int64_t block = team.lane(); block < blocks; block += team.lanes()) {
    auto values = load<4>(of.sum + first + 4 * block);
    const auto gamma = load<4>(of.gamma + 4 * block), beta = load<4>(of.beta + 4 * block);
    for (int i = 0; i < 4; ++i) {
      values.at[i] = static_cast<T>((static_cast<R>(values.at[i]) - mean) * inverse_std * static_cast<R>(gamma.at[i]) + static_cast<R>(beta.at[i]));
    }
    store<4>(of.out + first + 4 * block, values);
  }
}

template <class T>
struct DropoutNormBackward {
  const T *gradient, *sum;
  const T* gamma;
  const Real<T> *mean, *inverse_std;
  T *dx, *dy;  // the same where nothing is dropped
};

template <class T, class Team>
VLA_HOST_DEVICE void add_dropout_norm_backward(const DropoutMask& mask, const DropoutNormBackward<T>& of, int64_t token, const Team& team) {
  using R = Real<T>;
  const int64_t first = token * mask.fill.inner, blocks = mask.fill.inner / 4;
  const R mean = of.mean[token], inverse_std = of.inverse_std[token], count = static_cast<R>(mask.fill.inner);
  R total = 0, products = 0;
  for (int64_t block = team.lane(); block < blocks; block += team.lanes()) {
    const auto values = load<4>(of.sum + first + 4 * block), gradients = load<4>(of.gradient + first + 4 * block);
    const auto gamma = load<4>(of.gamma + 4 * block);
    for (int i = 0; i < 4; ++i) {
      const R gradient = static_cast<R>(gradients.at[i]) * static_cast<R>(gamma.at[i]);
      total += gradient;
      products += gradient * (static_cast<R>(values.at[i]) - mean) * inverse_std;
    }
  }
  const R mean_gradient = team.sum(total) / count, mean_product = team.sum(products) / count;
  for (int64_t block = team.lane(); block < blocks; block += team.lanes()) {
    auto values = load<4>(of.sum + first + 4 * block), gradients = load<4>(of.gradient + first + 4 * block);
    const auto gamma = load<4>(of.gamma + 4 * block);
    const auto factors = mask.factors<R>(token, block);
    for (int i = 0; i < 4; ++i) {
      const R normalized = (static_cast<R>(values.at[i]) - mean) * inverse_std;
      const R dx = inverse_std * (static_cast<R>(gradients.at[i]) * static_cast<R>(gamma.at[i]) - mean_gradient - normalized * mean_product);
      values.at[i] = static_cast<T>(dx);
      gradients.at[i] = static_cast<T>(dx * factors.at[i]);
    }
    store<4>(of.dx + first + 4 * block, values);
    if (mask.drops) store<4>(of.dy + first + 4 * block, gradients);
  }
}

cudaError_t relu_dropout_cuda(const DropoutMask& mask, const void* x, void* y, CudaElement type, cudaStream_t stream);
cudaError_t relu_dropout_backward_cuda(const DropoutMask& mask, const void* gradient, const void* y, void* dx, CudaElement type, cudaStream_t stream);

struct DropoutNormTensors {
  const void *x = nullptr, *y = nullptr, *gamma = nullptr, *beta = nullptr, *gradient = nullptr;
  void *sum = nullptr, *out = nullptr, *mean = nullptr, *inverse_std = nullptr, *dx = nullptr, *dy = nullptr;
  double eps = 0;

  template <class T>
  DropoutNorm<T> forward() const {
    return {static_cast<const T*>(x), static_cast<const T*>(y), static_cast<const T*>(gamma), static_cast<const T*>(beta), static_cast<T*>(sum),
            static_cast<T*>(out), static_cast<Real<T>*>(mean), static_cast<Real<T>*>(inverse_std), static_cast<Real<T>>(eps)};
  }
  template <class T>
  DropoutNormBackward<T> backward() const {
    return {static_cast<const T*>(gradient), static_cast<const T*>(sum), static_cast<const T*>(gamma), static_cast<const Real<T>*>(mean),
            static_cast<const Real<T>*>(inverse_std), static_cast<T*>(dx), static_cast<T*>(dy)};
  }
};
// Parameters are of `type` too.
cudaError_t add_dropout_norm_cuda(const DropoutMask& mask, const DropoutNormTensors& tensors, CudaElement type, cudaStream_t stream);
cudaError_t add_dropout_norm_backward_cuda(const DropoutMask& mask, const DropoutNormTensors& tensors, CudaElement type, cudaStream_t stream);

}  // namespace vla
