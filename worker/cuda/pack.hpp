// Several neighbouring elements read and written at once, and the type that sums of them are kept in. Shared by kernels and the CPU's
// loops; no Torch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "worker/policies/nn/counter_fill.hpp"

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

}  // namespace vla
