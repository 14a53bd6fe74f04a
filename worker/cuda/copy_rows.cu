#include "worker/cuda/copy_rows.hpp"

namespace vla {
namespace {

constexpr int kCopyThreads = 256;

__global__ void __launch_bounds__(kCopyThreads) copy_rows_kernel(const CopyRows rows) {
  const CopyRow chunk = rows.chunk(blockIdx.x);
  const bool is_aligned = (reinterpret_cast<uintptr_t>(chunk.from) | reinterpret_cast<uintptr_t>(chunk.to)) % sizeof(uint4) == 0;
  const int64_t wide = is_aligned ? chunk.bytes / static_cast<int64_t>(sizeof(uint4)) : 0;
  for (int64_t i = threadIdx.x; i < wide; i += kCopyThreads) {
    reinterpret_cast<uint4*>(chunk.to)[i] = reinterpret_cast<const uint4*>(chunk.from)[i];
  }
  for (int64_t i = wide * static_cast<int64_t>(sizeof(uint4)) + threadIdx.x; i < chunk.bytes; i += kCopyThreads) chunk.to[i] = chunk.from[i];
}

}  // namespace

cudaError_t copy_rows_cuda(const CopyRows& rows, cudaStream_t stream) {
  if (rows.chunks() > 0) copy_rows_kernel<<<rows.chunks(), kCopyThreads, 0, stream>>>(rows);
  return cudaGetLastError();
}

cudaError_t load_copy_rows_cuda() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, copy_rows_kernel);
}

}  // namespace vla
