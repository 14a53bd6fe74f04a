#include "worker/cuda/unfold_steps.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

template <int N, class T>
__global__ void unfold_kernel(UnfoldSteps unfold, const T* x, T* windows) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (channel >= unfold.channels) return;
  for (int64_t place = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; place < unfold.windows(); place += int64_t{gridDim.x} * blockDim.y) {
    unfold.unfold<N>(x, windows, place, channel);
  }
}

template <int N, class T>
__global__ void fold_kernel(UnfoldSteps unfold, const T* windows, T* x) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (channel >= unfold.channels) return;
  for (int64_t at = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; at < unfold.rows * unfold.steps; at += int64_t{gridDim.x} * blockDim.y) {
    unfold.fold<N>(windows, x, at, channel);
  }
}

template <int N, class T>
void launch_unfold(const UnfoldSteps& unfold, const void* x, void* windows, cudaStream_t stream) {
  const RowGrid grid(unfold.windows(), unfold.channels / N, kManyBlocks);
  unfold_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(unfold, static_cast<const T*>(x), static_cast<T*>(windows));
}

template <int N, class T>
void launch_fold(const UnfoldSteps& unfold, const void* windows, void* x, cudaStream_t stream) {
  const RowGrid grid(unfold.rows * unfold.steps, unfold.channels / N, kManyBlocks);
  fold_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(unfold, static_cast<const T*>(windows), static_cast<T*>(x));
}

}  // namespace

cudaError_t unfold_steps_cuda(const UnfoldSteps& unfold, const void* x, void* windows, CudaElement type, cudaStream_t stream) {
  if (unfold.windows() * unfold.channels == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    if (unfold.channels % kPack<T> == 0) {
      launch_unfold<kPack<T>, T>(unfold, x, windows, stream);
    } else {
      launch_unfold<1, T>(unfold, x, windows, stream);
    }
  });
}

cudaError_t fold_steps_cuda(const UnfoldSteps& unfold, const void* windows, void* x, CudaElement type, cudaStream_t stream) {
  if (unfold.rows * unfold.steps * unfold.channels == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    if (unfold.channels % kPack<T> == 0) {
      launch_fold<kPack<T>, T>(unfold, windows, x, stream);
    } else {
      launch_fold<1, T>(unfold, windows, x, stream);
    }
  });
}

}  // namespace vla
