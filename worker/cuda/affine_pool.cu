#include "worker/cuda/affine_pool.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

template <int N, class T>
__global__ void pool_forward_kernel(AffinePool pool, const T* x, T* y, uint8_t* chosen) {
  const int64_t channel = RowGrid::channel<N>();
  if (channel >= pool.channels) return;
  pool.forward<N>(x, y, chosen, channel, RowGrid::first_row(), RowGrid::rows_at_once());
}

template <int N, class T>
__global__ void pool_backward_kernel(AffinePool pool, const T* gradient, const uint8_t* chosen, T* dx) {
  const int64_t channel = RowGrid::channel<N>();
  if (channel >= pool.channels) return;
  pool.backward<N>(gradient, chosen, dx, channel, RowGrid::first_row(), RowGrid::rows_at_once());
}

}  // namespace

cudaError_t affine_pool_forward_cuda(const AffinePool& pool, const void* x, void* y, uint8_t* chosen, CudaElement type, cudaStream_t stream) {
  if (pool.outputs() * pool.channels == 0) return cudaSuccess;
  return with_packs(type, pool.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int N = decltype(pack)::value;
    const RowGrid grid(pool.outputs(), pool.channels / N, kManyBlocks);
    pool_forward_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(pool, static_cast<const T*>(x), static_cast<T*>(y), chosen);
  });
}

cudaError_t affine_pool_backward_cuda(const AffinePool& pool, const void* gradient, const uint8_t* chosen, void* dx, CudaElement type,
                                      cudaStream_t stream) {
  if (pool.outputs() * pool.channels == 0) return cudaSuccess;
  return with_packs(type, pool.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int N = decltype(pack)::value;
    const RowGrid grid(pool.images * pool.height * pool.width, pool.channels / N, kManyBlocks);
    pool_backward_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(pool, static_cast<const T*>(gradient), chosen, static_cast<T*>(dx));
  });
}

}  // namespace vla
