// Normalisation of a row: of the sum x + added + offset, to a root mean square of one (RMSNorm) or to mean 0 and variance 1 (LayerNorm),
// times a weight, plus a bias; and RMSNorm's gradients. Same arithmetic on CPU and CUDA. A lane keeps up to kSteps chunks of the row.
#pragma once

#include "worker/policies/nn/row_group.hpp"

namespace vla {

constexpr int kWidestNorm = 2048;

// Pointers to rows of one dtype; all but x, weight and normalized may be null. sum may be x.
struct NormForward {
  const void* x = nullptr;  // [rows, width]
  const void* added = nullptr;  // [rows, width]
  const void* offset = nullptr;  // [width]
  const void* weight = nullptr;  // [width]
  const void* bias = nullptr;  // [width]
  void* sum = nullptr;  // [rows, width]: x + added
  void* normalized = nullptr;  // [rows, width]
  int64_t rows = 0, width = 0;
  double eps = 0;
  bool centered = false;
};

// Of the root-mean-square form without offset.
struct NormBackward {
  const void* sum = nullptr;
  const void* weight = nullptr;
  const void* grad_normalized = nullptr;
  const void* grad_sum = nullptr;  // or null: what reaches the sum past the normalisation
  void* grad = nullptr;  // [rows, width]: of x and of added alike
  int64_t rows = 0, width = 0;
  double eps = 0;
};

template <int kSteps, class T, class Group>
VLA_HOST_DEVICE void norm_row_forward(const Group& group, const NormForward& of, int64_t row) {
  using Real = RealOf<T>;
  const int64_t start = row * of.width;
  const int chunks = static_cast<int>(of.width / kChunk);
  Real values[kSteps][kChunk], other[kChunk];
  Real total = 0, squares = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = group.lane() + step * group.lanes();
    if (chunk >= chunks) break;
    Real* v = values[step];
    load_chunk(static_cast<const T*>(of.x) + start + chunk * kChunk, v);
    if (of.added != nullptr) {
      load_chunk(static_cast<const T*>(of.added) + start + chunk * kChunk, other);
      for (int i = 0; i < kChunk; ++i) v[i] = static_cast<Real>(static_cast<T>(v[i] + other[i]));  // backward sees the rounded sum
    }
    if (of.sum != nullptr) store_chunk(v, static_cast<T*>(of.sum) + start + chunk * kChunk);
    if (of.offset != nullptr) {
      load_chunk(static_cast<const T*>(of.offset) + chunk * kChunk, other);
      for (int i = 0; i < kChunk; ++i) v[i] += other[i];
    }
    for (int i = 0; i < kChunk; ++i) {
      total += v[i];
      squares += v[i] * v[i];
    }
  }
  const Real share = Real{1} / static_cast<Real>(of.width);
  Real mean = 0, variance = 0;
  if (of.centered) {  // from the row itself: the difference of two large sums would lose it
    mean = group.sum(total) * share;
    squares = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int step = 0; step < kSteps; ++step) {
      if (group.lane() + step * group.lanes() >= chunks) break;
      for (int i = 0; i < kChunk; ++i) squares += (values[step][i] - mean) * (values[step][i] - mean);
    }
  }
  variance = group.sum(squares) * share;
  const Real scale = Real{1} / std::sqrt(variance + static_cast<Real>(of.eps));
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = group.lane() + step * group.lanes();
    if (chunk >= chunks) break;
    load_chunk(static_cast<const T*>(of.weight) + chunk * kChunk, other);
    for (int i = 0; i < kChunk; ++i) values[step][i] = (values[step][i] - mean) * scale * other[i];
    if (of.bias != nullptr) {
      load_chunk(static_cast<const T*>(of.bias) + chunk * kChunk, other);
      for (int i = 0; i < kChunk; ++i) values[step][i] += other[i];
    }
    store_chunk(values[step], static_cast<T*>(of.normalized) + start + chunk * kChunk);
  }
}

// add_weight(step, chunk, i, value): a share of the gradient of weight chunk * kChunk + i.
template <int kSteps, class T, class Group, class AddWeight>
VLA_HOST_DEVICE void norm_row_backward(const Group& group, const NormBackward& of, int64_t row, AddWeight add_weight) {
  using Real = RealOf<T>;
  const int64_t start = row * of.width;
  const int chunks = static_cast<int>(of.width / kChunk);
  Real values[kSteps][kChunk], gradients[kSteps][kChunk], other[kChunk];
  Real squares = 0, product = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = group.lane() + step * group.lanes();
    if (chunk >= chunks) break;
    load_chunk(static_cast<const T*>(of.sum) + start + chunk * kChunk, values[step]);
    load_chunk(static_cast<const T*>(of.grad_normalized) + start + chunk * kChunk, gradients[step]);
    load_chunk(static_cast<const T*>(of.weight) + chunk * kChunk, other);
    for (int i = 0; i < kChunk; ++i) {
      squares += values[step][i] * values[step][i];
      product += values[step][i] * gradients[step][i] * other[i];
    }
  }
  const Real share = Real{1} / static_cast<Real>(of.width);
  const Real scale = Real{1} / std::sqrt(group.sum(squares) * share + static_cast<Real>(of.eps));
  const Real pull = group.sum(product) * share * scale * scale;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = group.lane() + step * group.lanes();
    if (chunk >= chunks) break;
    for (int i = 0; i < kChunk; ++i) add_weight(step, chunk, i, gradients[step][i] * values[step][i] * scale);
    load_chunk(static_cast<const T*>(of.weight) + chunk * kChunk, other);
    for (int i = 0; i < kChunk; ++i) gradients[step][i] = scale * (gradients[step][i] * other[i] - values[step][i] * pull);
    if (of.grad_sum != nullptr) {
      load_chunk(static_cast<const T*>(of.grad_sum) + start + chunk * kChunk, other);
      for (int i = 0; i < kChunk; ++i) gradients[step][i] += other[i];
    }
    store_chunk(gradients[step], static_cast<T*>(of.grad) + start + chunk * kChunk);
  }
}

}  // namespace vla
