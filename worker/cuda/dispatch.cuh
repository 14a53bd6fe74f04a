// What launchers share: the C++ type of a CudaElement, and grids for tensors [pixels, channels] whose rows are read in packs of 16 bytes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

// Calls f with a value of the type; returns the launch's status.
template <class F>
cudaError_t with_element(CudaElement type, const F& f) {
  switch (type) {
    case CudaElement::kFloat64: f(double{}); break;
    case CudaElement::kFloat32: f(float{}); break;
    case CudaElement::kBFloat16: f(__nv_bfloat16{}); break;
    case CudaElement::kFloat16: f(__half{}); break;
  }
  return cudaGetLastError();
}

template <class T>
constexpr int kPack = static_cast<int>(16 / sizeof(T));

// Threads: x over a row's packs, so that a thread keeps its channels, y over rows.
struct RowGrid {
  dim3 blocks, threads;

  RowGrid(int64_t rows, int64_t packs, int64_t most_blocks) {
    constexpr int64_t kThreads = 256;
    const int64_t x = std::min(packs, kThreads), y = std::max<int64_t>(1, kThreads / x);
    threads = dim3(static_cast<unsigned>(x), static_cast<unsigned>(y));
    blocks = dim3(static_cast<unsigned>(std::min((rows + y - 1) / y, most_blocks)), static_cast<unsigned>((packs + x - 1) / x));
  }
};

constexpr int64_t kManyBlocks = 132 * 16;

}  // namespace vla
