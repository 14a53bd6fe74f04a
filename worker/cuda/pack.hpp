// Several neighbouring elements read and written at once, and the type that they are computed in. Shared by kernels and the CPU's loops;
// no Torch.
#pragma once

#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define VLA_HOST_DEVICE __host__ __device__
#else
#define VLA_HOST_DEVICE
#endif

namespace vla {

template <class T>
using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <int N, class T>
VLA_HOST_DEVICE inline Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <int N, class T>
VLA_HOST_DEVICE inline void store(T* to, const Pack<T, N>& values) {
  *reinterpret_cast<Pack<T, N>*>(to) = values;
}

// What a pack of 16 bytes holds.
template <class T>
constexpr int kPack = static_cast<int>(16 / sizeof(T));

// A chunk of eight, 16 bytes at a time: rows are multiples of eight long and aligned.
constexpr int kChunk = 8;

// N elements, a chunk or one.
template <int N, class T, class R>
VLA_HOST_DEVICE inline void load_values(const T* from, R* to) {
  constexpr int kAtOnce = N < kPack<T> ? N : kPack<T>;
  for (int first = 0; first < N; first += kAtOnce) {
    const auto values = load<kAtOnce>(from + first);
    for (int i = 0; i < kAtOnce; ++i) to[first + i] = static_cast<R>(values.at[i]);
  }
}

template <int N, class T, class R>
VLA_HOST_DEVICE inline void store_values(const R* from, T* to) {
  constexpr int kAtOnce = N < kPack<T> ? N : kPack<T>;
  for (int first = 0; first < N; first += kAtOnce) {
    Pack<T, kAtOnce> values;
    for (int i = 0; i < kAtOnce; ++i) values.at[i] = static_cast<T>(from[first + i]);
    store(to + first, values);
  }
}

template <class T, class R>
VLA_HOST_DEVICE inline void load_chunk(const T* from, R* to) { load_values<kChunk>(from, to); }

template <class T, class R>
VLA_HOST_DEVICE inline void store_chunk(const R* from, T* to) { store_values<kChunk>(from, to); }

}  // namespace vla
