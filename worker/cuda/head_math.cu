#include "worker/cuda/head_math.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

constexpr int64_t kThreads = 256;

template <class T, int kSize>
__global__ void rotate_kernel(RotateHeads first, RotateHeads second) {
  const int64_t pair = (blockIdx.x * kThreads + threadIdx.x) * kSize, of_second = pair - first.pairs();
  if (of_second < 0) {
    rotate_pairs<T, kSize>(first, pair);
  } else if (of_second < second.pairs()) {
    rotate_pairs<T, kSize>(second, of_second);
  }
}

template <class T>
__global__ void silu_mul_kernel(SiluMul of) {
  const int64_t chunk = blockIdx.x * kThreads + threadIdx.x;
  if (chunk < of.chunks()) silu_mul_chunk<T>(of, chunk);
}

unsigned blocks_for(int64_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

}  // namespace

cudaError_t rotate_heads_cuda(const RotateHeads& first, const RotateHeads& second, CudaElement type, cudaStream_t stream) {
  const bool wide = first.wide && second.wide;
  const unsigned blocks = blocks_for((first.pairs() + second.pairs()) / (wide ? kChunk : 1));
  if (blocks == 0) return cudaSuccess;
  return with_narrow_element(type, [&](auto element) {
    using T = decltype(element);
    const auto kernel = wide ? rotate_kernel<T, kChunk> : rotate_kernel<T, 1>;
    kernel<<<blocks, kThreads, 0, stream>>>(first, second);
  });
}

cudaError_t silu_mul_cuda(const SiluMul& of, CudaElement type, cudaStream_t stream) {
  const unsigned blocks = blocks_for(of.chunks());
  if (blocks == 0) return cudaSuccess;
  return with_narrow_element(type, [&](auto element) { silu_mul_kernel<decltype(element)><<<blocks, kThreads, 0, stream>>>(of); });
}

}  // namespace vla
