#include "worker/cuda/unfold_steps.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

template <int N, class T>
__global__ void unfold_kernel(UnfoldSteps unfold, const T* x, T* windows) {
  const int64_t channel = RowGrid::channel<N>();
  if (channel >= unfold.channels) return;
  for (int64_t place = RowGrid::first_row(); place < unfold.windows(); place += RowGrid::rows_at_once()) {
    unfold.unfold<N>(x, windows, place, channel);
  }
}

template <int N, class T>
__global__ void fold_kernel(UnfoldSteps unfold, const T* windows, T* x) {
  const int64_t channel = RowGrid::channel<N>();
  if (channel >= unfold.channels) return;
  for (int64_t at = RowGrid::first_row(); at < unfold.rows * unfold.steps; at += RowGrid::rows_at_once()) {
    unfold.fold<N>(windows, x, at, channel);
  }
}

}  // namespace

cudaError_t unfold_steps_cuda(const UnfoldSteps& unfold, const void* x, void* windows, CudaElement type, cudaStream_t stream) {
  if (unfold.windows() * unfold.channels == 0) return cudaSuccess;
  return with_packs(type, unfold.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int N = decltype(pack)::value;
    const RowGrid grid(unfold.windows(), unfold.channels / N, kManyBlocks);
    unfold_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(unfold, static_cast<const T*>(x), static_cast<T*>(windows));
  });
}

cudaError_t fold_steps_cuda(const UnfoldSteps& unfold, const void* windows, void* x, CudaElement type, cudaStream_t stream) {
  if (unfold.rows * unfold.steps * unfold.channels == 0) return cudaSuccess;
  return with_packs(type, unfold.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int N = decltype(pack)::value;
    const RowGrid grid(unfold.rows * unfold.steps, unfold.channels / N, kManyBlocks);
    fold_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(unfold, static_cast<const T*>(windows), static_cast<T*>(x));
  });
}

}  // namespace vla
