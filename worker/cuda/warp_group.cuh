// A warp as the group of row_group.hpp.
#pragma once

#include "worker/policies/nn/row_group.hpp"

namespace vla {

constexpr int kWarp = 32;

struct WarpGroup {
  __device__ int lane() const { return static_cast<int>(threadIdx.x % kWarp); }
  __device__ constexpr int lanes() const { return kWarp; }
  __device__ float sum(float x) const {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
  }
};

}  // namespace vla
