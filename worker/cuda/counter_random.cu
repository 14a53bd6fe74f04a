#include "worker/cuda/counter_random.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

template <class T>
__global__ void fill_kernel(CounterFill fill, const T* input, T* output) {
  const int64_t blocks = fill.blocks_per_row();
  const int64_t total = fill.rows * blocks;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < total; i += int64_t{gridDim.x} * blockDim.x) {
    counter_fill_block(fill, input, output, i / blocks, i % blocks);
  }
}

template <class T>
void launch(const CounterFill& fill, const void* input, void* output, cudaStream_t stream) {
  constexpr int64_t kThreads = 256;
  const int64_t grid = (fill.rows * fill.blocks_per_row() + kThreads - 1) / kThreads;
  fill_kernel<T><<<static_cast<unsigned>(grid < 65535 ? grid : 65535), kThreads, 0, stream>>>(
      fill, static_cast<const T*>(input), static_cast<T*>(output));
}

}  // namespace

cudaError_t counter_fill_cuda(const CounterFill& fill, const void* input, void* output, CudaElement type, cudaStream_t stream) {
  if (fill.rows * fill.elements_per_row() == 0) return cudaSuccess;
  return with_element(type, [&](auto element) { launch<decltype(element)>(fill, input, output, stream); });
}

}  // namespace vla
