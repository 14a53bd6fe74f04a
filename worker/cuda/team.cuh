// A warp and a block as the teams of team.hpp. Sums are taken in a fixed order.
#pragma once

#include "worker/cuda/team.hpp"

namespace vla {

constexpr int kWarp = 32;

struct Warp {
  __device__ int lane() const { return static_cast<int>(threadIdx.x % kWarp); }
  __device__ constexpr int lanes() const { return kWarp; }
  template <class R>
  __device__ R sum(R x) const {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
  }
};

// Of whole warps.
template <int kMostThreads>
struct Block {
  __device__ int lane() const { return static_cast<int>(threadIdx.x); }
  __device__ int lanes() const { return static_cast<int>(blockDim.x); }
  template <class R>
  __device__ R sum(R x) const {
    __shared__ R of_warp[kMostThreads / kWarp];
    x = Warp{}.sum(x);
    __syncthreads();  // the last sum has been read
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
    __syncthreads();
    R total = 0;
    for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) total += of_warp[warp];
    return total;
  }
};

}  // namespace vla
