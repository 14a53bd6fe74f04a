// Normalisation of a row: of the sum x + added + offset, to a root mean square of one (RMSNorm) or to mean 0 and variance 1 (LayerNorm),
// times a weight, plus a bias; and RMSNorm's gradients. Same arithmetic on CPU and CUDA. A lane keeps up to kSteps chunks of the row.
#pragma once

#include "worker/cuda/team.hpp"

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

// f(step, chunk) of each chunk of a lane. Arrays with a place for each step stay in registers: on a GPU every step has its own code.
template <int kSteps, class Team, class F>
VLA_HOST_DEVICE void for_each_chunk(const Team& team, int64_t width, const F& f) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = team.lane() + step * team.lanes();
    if (chunk >= static_cast<int>(width / kChunk)) break;
    f(step, chunk);
  }
}

template <int kSteps, class T, class Team>
VLA_HOST_DEVICE void norm_row_forward(const Team& team, const NormForward& of, int64_t row) {
  using R = Real<T>;
  const int64_t start = row * of.width;
  R values[kSteps][kChunk], other[kChunk];
  R total = 0, squares = 0;
  for_each_chunk<kSteps>(team, of.width, [&](int step, int chunk) {
    R* v = values[step];
    load_chunk(static_cast<const T*>(of.x) + start + chunk * kChunk, v);
    if (of.added != nullptr) {
      load_chunk(static_cast<const T*>(of.added) + start + chunk * kChunk, other);
      for (int i = 0; i < kChunk; ++i) v[i] = static_cast<R>(static_cast<T>(v[i] + other[i]));  // backward sees the rounded sum
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
  });
  const R share = R{1} / static_cast<R>(of.width);
  R mean = 0, variance = 0;
  if (of.centered) {  // from the row itself: the difference of two large sums would lose it
    mean = team.sum(total) * share;
    squares = 0;
    for_each_chunk<kSteps>(team, of.width, [&](int step, int) {
      for (int i = 0; i < kChunk; ++i) squares += (values[step][i] - mean) * (values[step][i] - mean);
    });
  }
  variance = team.sum(squares) * share;
  const R scale = R{1} / std::sqrt(variance + static_cast<R>(of.eps));
  for_each_chunk<kSteps>(team, of.width, [&](int step, int chunk) {
    load_chunk(static_cast<const T*>(of.weight) + chunk * kChunk, other);
    for (int i = 0; i < kChunk; ++i) values[step][i] = (values[step][i] - mean) * scale * other[i];
    if (of.bias != nullptr) {
      load_chunk(static_cast<const T*>(of.bias) + chunk * kChunk, other);
      for (int i = 0; i < kChunk; ++i) values[step][i] += other[i];
    }
    store_chunk(values[step], static_cast<T*>(of.normalized) + start + chunk * kChunk);
  });
}

// add_weight(step, chunk, i, value): a share of the gradient of weight chunk * kChunk + i.
template <int kSteps, class T, class Team, class AddWeight>
VLA_HOST_DEVICE void norm_row_backward(const Team& team, const NormBackward& of, int64_t row, AddWeight add_weight) {
  using R = Real<T>;
  const int64_t start = row * of.width;
  R values[kSteps][kChunk], gradients[kSteps][kChunk], other[kChunk];
  R squares = 0, product = 0;
  for_each_chunk<kSteps>(team, of.width, [&](int step, int chunk) {
    load_chunk(static_cast<const T*>(of.sum) + start + chunk * kChunk, values[step]);
    load_chunk(static_cast<const T*>(of.grad_normalized) + start + chunk * kChunk, gradients[step]);
    load_chunk(static_cast<const T*>(of.weight) + chunk * kChunk, other);
    for (int i = 0; i < kChunk; ++i) {
      squares += values[step][i] * values[step][i];
      product += values[step][i] * gradients[step][i] * other[i];
    }
  });
  const R share = R{1} / static_cast<R>(of.width);
  const R scale = R{1} / std::sqrt(team.sum(squares) * share + static_cast<R>(of.eps));
  const R pull = team.sum(product) * share * scale * scale;
  for_each_chunk<kSteps>(team, of.width, [&](int step, int chunk) {
    for (int i = 0; i < kChunk; ++i) add_weight(step, chunk, i, gradients[step][i] * values[step][i] * scale);
    load_chunk(static_cast<const T*>(of.weight) + chunk * kChunk, other);
    for (int i = 0; i < kChunk; ++i) gradients[step][i] = scale * (gradients[step][i] * other[i] - values[step][i] * pull);
    if (of.grad_sum != nullptr) {
      load_chunk(static_cast<const T*>(of.grad_sum) + start + chunk * kChunk, other);
      for (int i = 0; i < kChunk; ++i) gradients[step][i] += other[i];
    }
    store_chunk(gradients[step], static_cast<T*>(of.grad) + start + chunk * kChunk);
  });
}

}  // namespace vla
