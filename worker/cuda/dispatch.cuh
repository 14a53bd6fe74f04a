// What launchers share: the C++ type of a CudaElement, and grids for tensors [pixels, channels] whose rows are read in packs of 16 bytes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

// Calls f with a value of the type; returns the launch's status. Kernels for float64, too, are with_element()'s.
template <class F>
cudaError_t with_narrow_element(CudaElement type, const F& f) {
  switch (type) {
    case CudaElement::kFloat64: return cudaErrorInvalidValue;
    case CudaElement::kFloat32: f(float{}); break;
    case CudaElement::kBFloat16: f(__nv_bfloat16{}); break;
    case CudaElement::kFloat16: f(__half{}); break;
  }
  return cudaGetLastError();
}

template <class F>
cudaError_t with_element(CudaElement type, const F& f) {
  if (type != CudaElement::kFloat64) return with_narrow_element(type, f);
  f(double{});
  return cudaGetLastError();
}

// f(element, pack) with a value of the type and the widest pack that the channels allow.
template <class F>
cudaError_t with_packs(CudaElement type, int64_t channels, const F& f) {
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    if (channels % kPack<T> == 0) {
      f(element, std::integral_constant<int, kPack<T>>{});
    } else {
      f(element, std::integral_constant<int, 1>{});
    }
  });
}

// Threads: x over a row's packs, so that a thread keeps its channels, y over rows.
struct RowGrid {
  dim3 blocks, threads;

  // Of packs of N: the first channel of a thread, its first row, and how many rows further its next is.
  template <int N>
  __device__ static int64_t channel() {
    return (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  }
  __device__ static int64_t first_row() { return int64_t{blockIdx.x} * blockDim.y + threadIdx.y; }
  __device__ static int64_t rows_at_once() { return int64_t{gridDim.x} * blockDim.y; }

  RowGrid(int64_t rows, int64_t packs, int64_t most_blocks) {
    constexpr int64_t kThreads = 256;
    const int64_t x = std::min(packs, kThreads), y = std::max<int64_t>(1, kThreads / x);
    threads = dim3(static_cast<unsigned>(x), static_cast<unsigned>(y));
    blocks = dim3(static_cast<unsigned>(std::min((rows + y - 1) / y, most_blocks)), static_cast<unsigned>((packs + x - 1) / x));
  }
};

constexpr int64_t kManyBlocks = 132 * 16;

}  // namespace vla
