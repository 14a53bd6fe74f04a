// The threads that work on one row of numbers together: a warp on a GPU, one thread on the CPU. Kernels written against them have one
// arithmetic for both. Numbers are moved in chunks of eight, 16 bytes at a time on a GPU: rows are multiples of eight long and aligned.
#pragma once

#include <cstdint>
#include <type_traits>

#include "worker/policies/nn/counter_fill.hpp"

namespace vla {

constexpr int kChunk = 8;

// What numbers of a type are computed in.
template <class T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

struct OneThread {
  VLA_HOST_DEVICE int lane() const { return 0; }
  VLA_HOST_DEVICE int lanes() const { return 1; }
  template <class Real>
  VLA_HOST_DEVICE Real sum(Real x) const {
    return x;
  }
};

template <class T, class Real>
VLA_HOST_DEVICE inline void load_chunk(const T* from, Real* to) {
#ifdef __CUDA_ARCH__
  int4 words[kChunk * sizeof(T) / sizeof(int4)];
  for (size_t i = 0; i < sizeof(words) / sizeof(int4); ++i) words[i] = reinterpret_cast<const int4*>(from)[i];
  const T* values = reinterpret_cast<const T*>(words);
#else
  const T* values = from;
#endif
  for (int i = 0; i < kChunk; ++i) to[i] = static_cast<Real>(values[i]);
}

template <class T, class Real>
VLA_HOST_DEVICE inline void store_chunk(const Real* from, T* to) {
#ifdef __CUDA_ARCH__
  int4 words[kChunk * sizeof(T) / sizeof(int4)];
  for (int i = 0; i < kChunk; ++i) reinterpret_cast<T*>(words)[i] = static_cast<T>(from[i]);
  for (size_t i = 0; i < sizeof(words) / sizeof(int4); ++i) reinterpret_cast<int4*>(to)[i] = words[i];
#else
  for (int i = 0; i < kChunk; ++i) to[i] = static_cast<T>(from[i]);
#endif
}

}  // namespace vla
