#include "worker/cuda/channel_affine.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

template <int N, class T>
__global__ void forward_kernel(ChannelAffine affine, const T* x, const T* residual, T* y) {
  const int64_t channel = RowGrid::channel<N>();
  if (channel >= affine.channels) return;
  affine.forward<N>(x, residual, y, channel, RowGrid::first_row(), RowGrid::rows_at_once());
}

template <int N, class T>
__global__ void backward_kernel(ChannelAffine affine, const T* gradient, const T* y, T* dx, T* d_residual) {
  const int64_t channel = RowGrid::channel<N>();
  if (channel >= affine.channels) return;
  affine.backward<N>(gradient, y, dx, d_residual, channel, RowGrid::first_row(), RowGrid::rows_at_once());
}

}  // namespace

cudaError_t channel_affine_forward_cuda(const ChannelAffine& affine, const void* x, const void* residual, void* y, CudaElement type,
                                        cudaStream_t stream) {
  if (affine.pixels * affine.channels == 0) return cudaSuccess;
  return with_packs(type, affine.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int N = decltype(pack)::value;
    const RowGrid grid(affine.pixels, affine.channels / N, kManyBlocks);
    forward_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(affine, static_cast<const T*>(x), static_cast<const T*>(residual),
                                                                    static_cast<T*>(y));
  });
}

cudaError_t channel_affine_backward_cuda(const ChannelAffine& affine, const void* gradient, const void* y, void* dx, void* d_residual,
                                         CudaElement type, cudaStream_t stream) {
  if (affine.pixels * affine.channels == 0) return cudaSuccess;
  return with_packs(type, affine.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int N = decltype(pack)::value;
    const RowGrid grid(affine.pixels, affine.channels / N, kManyBlocks);
    backward_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(affine, static_cast<const T*>(gradient), static_cast<const T*>(y),
                                                                     static_cast<T*>(dx), static_cast<T*>(d_residual));
  });
}

}  // namespace vla
