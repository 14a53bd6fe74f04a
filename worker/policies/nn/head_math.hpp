// Element-wise arithmetic of the fused rotary embedding and of SiLU(gate) * up, the same on CPU and CUDA.
#pragma once

#include <cmath>

#include "worker/cuda/pack.hpp"

namespace vla {

// Rotates the halves of heads against each other. Of queries, heads that share keys stand together outside, head = kv * group + g, and
// apart inside, place = g * kv_heads + kv, so that the queries of a group stand under each other as attention reads them.
struct RotateHeads {
  const void* input = nullptr;  // [rows, heads, 2 * half], rows input_stride apart
  void* output = nullptr;  // the same, contiguous
  const float* cos = nullptr;  // [table_rows, half]; row r takes that of r % table_rows
  const float* sin = nullptr;
  int64_t input_stride = 0, rows = 0, table_rows = 1;
  int heads = 1, group = 1, half = 1;
  bool backward = false;  // the other way round: from inside to outside, rotated back
  bool wide = true;  // chunks of pairs: halves and strides are multiples of a chunk, and all is aligned for it

  VLA_HOST_DEVICE int64_t pairs() const { return rows * heads * half; }
};

// kSize pairs from `pair` on, a chunk or one.
template <class T, int kSize>
VLA_HOST_DEVICE void rotate_pairs(const RotateHeads& of, int64_t pair) {
  using R = Real<T>;
  const int64_t row = pair / (of.heads * of.half);
  const int rest = static_cast<int>(pair % (of.heads * of.half)), head = rest / of.half, i = rest % of.half;
  const int inside = head % of.group * (of.heads / of.group) + head / of.group;
  const int from = of.backward ? inside : head, to = of.backward ? head : inside;
  const T* input = static_cast<const T*>(of.input) + row * of.input_stride + from * 2 * of.half + i;
  T* output = static_cast<T*>(of.output) + (row * of.heads + to) * 2 * of.half + i;
  const int64_t angle = row % of.table_rows * of.half + i;
  R first[kSize], second[kSize], cos[kSize], sin[kSize];
  load_values<kSize>(input, first);
  load_values<kSize>(input + of.half, second);
  load_values<kSize>(of.cos + angle, cos);
  load_values<kSize>(of.sin + angle, sin);
  for (int k = 0; k < kSize; ++k) {
    const R x = first[k], y = second[k], s = of.backward ? -sin[k] : sin[k];
    first[k] = x * cos[k] - y * s;
    second[k] = y * cos[k] + x * s;
  }
  store_values<kSize>(first, output);
  store_values<kSize>(second, output + of.half);
}

// output = silu(gate) * up; with grad_output the gradients of both.
struct SiluMul {
  const void* gate = nullptr;  // [rows, width], rows `stride` apart
  const void* up = nullptr;
  void* output = nullptr;  // contiguous, as all that follow
  const void* grad_output = nullptr;
  void* grad_gate = nullptr;
  void* grad_up = nullptr;
  int64_t stride = 0, rows = 0, width = 0;

  VLA_HOST_DEVICE int64_t chunks() const { return rows * (width / kChunk); }
};

VLA_HOST_DEVICE inline float exponential(float x) {
#ifdef __CUDA_ARCH__
  return __expf(x);
#else
  return std::exp(x);
#endif
}
VLA_HOST_DEVICE inline double exponential(double x) { return std::exp(x); }

template <class T>
VLA_HOST_DEVICE void silu_mul_chunk(const SiluMul& of, int64_t chunk) {
  using R = Real<T>;
  const int64_t per_row = of.width / kChunk, input = chunk / per_row * of.stride + chunk % per_row * kChunk, output = chunk * kChunk;
  R gate[kChunk], up[kChunk], gradient[kChunk];
  load_chunk(static_cast<const T*>(of.gate) + input, gate);
  load_chunk(static_cast<const T*>(of.up) + input, up);
  if (of.grad_output == nullptr) {
    for (int i = 0; i < kChunk; ++i) gate[i] = gate[i] / (R{1} + exponential(-gate[i])) * up[i];
    store_chunk(gate, static_cast<T*>(of.output) + output);
    return;
  }
  load_chunk(static_cast<const T*>(of.grad_output) + output, gradient);
  for (int i = 0; i < kChunk; ++i) {
    const R share = R{1} / (R{1} + exponential(-gate[i]));
    const R grad_gate = gradient[i] * up[i] * share * (R{1} + gate[i] * (R{1} - share));
    up[i] = gradient[i] * gate[i] * share;
    gate[i] = grad_gate;
  }
  store_chunk(gate, static_cast<T*>(of.grad_gate) + output);
  store_chunk(up, static_cast<T*>(of.grad_up) + output);
}

}  // namespace vla
