#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/cuda/head_math.hpp"

namespace vla {
namespace {

constexpr int64_t kThreads = 256;

template <class T>
__global__ void rotate_kernel(RotateHeads first, RotateHeads second) {
  const int64_t pair = blockIdx.x * kThreads + threadIdx.x, of_second = pair - first.pairs();
  if (of_second < 0) {
    rotate_pair<T>(first, pair);
  } else if (of_second < second.pairs()) {
    rotate_pair<T>(second, of_second);
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
  const unsigned blocks = blocks_for(first.pairs() + second.pairs());
  if (blocks == 0) return cudaSuccess;
  switch (type) {
    case CudaElement::kFloat64: return cudaErrorInvalidValue;
    case CudaElement::kFloat32: rotate_kernel<float><<<blocks, kThreads, 0, stream>>>(first, second); break;
    case CudaElement::kBFloat16: rotate_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(first, second); break;
    case CudaElement::kFloat16: rotate_kernel<__half><<<blocks, kThreads, 0, stream>>>(first, second); break;
  }
  return cudaGetLastError();
}

cudaError_t silu_mul_cuda(const SiluMul& of, CudaElement type, cudaStream_t stream) {
  const unsigned blocks = blocks_for(of.chunks());
  if (blocks == 0) return cudaSuccess;
  switch (type) {
    case CudaElement::kFloat64: return cudaErrorInvalidValue;
    case CudaElement::kFloat32: silu_mul_kernel<float><<<blocks, kThreads, 0, stream>>>(of); break;
    case CudaElement::kBFloat16: silu_mul_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(of); break;
    case CudaElement::kFloat16: silu_mul_kernel<__half><<<blocks, kThreads, 0, stream>>>(of); break;
  }
  return cudaGetLastError();
}

}  // namespace vla
