#include "worker/cuda/affine_pool.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

template <int N, class T>
__global__ void pool_forward_kernel(AffinePool pool, const T* x, T* y, uint8_t* chosen) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (channel >= pool.channels) return;
  pool.forward<N>(x, y, chosen, channel, int64_t{blockIdx.x} * blockDim.y + threadIdx.y, int64_t{gridDim.x} * blockDim.y);
}

template <int N, class T>
__global__ void pool_backward_kernel(AffinePool pool, const T* gradient, const uint8_t* chosen, T* dx) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (channel >= pool.channels) return;
  pool.backward<N>(gradient, chosen, dx, channel, int64_t{blockIdx.x} * blockDim.y + threadIdx.y, int64_t{gridDim.x} * blockDim.y);
}

template <int N, class T>
void launch_pool_forward(const AffinePool& pool, const void* x, void* y, uint8_t* chosen, cudaStream_t stream) {
  const RowGrid grid(pool.outputs(), pool.channels / N, kManyBlocks);
  pool_forward_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(pool, static_cast<const T*>(x), static_cast<T*>(y), chosen);
}

template <int N, class T>
void launch_pool_backward(const AffinePool& pool, const void* gradient, const uint8_t* chosen, void* dx, cudaStream_t stream) {
  const RowGrid grid(pool.images * pool.height * pool.width, pool.channels / N, kManyBlocks);
  pool_backward_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(pool, static_cast<const T*>(gradient), chosen, static_cast<T*>(dx));
}

}  // namespace

cudaError_t affine_pool_forward_cuda(const AffinePool& pool, const void* x, void* y, uint8_t* chosen, CudaElement type, cudaStream_t stream) {
  if (pool.outputs() * pool.channels == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    if (pool.channels % kPack<T> == 0) {
      launch_pool_forward<kPack<T>, T>(pool, x, y, chosen, stream);
    } else {
      launch_pool_forward<1, T>(pool, x, y, chosen, stream);
    }
  });
}

cudaError_t affine_pool_backward_cuda(const AffinePool& pool, const void* gradient, const uint8_t* chosen, void* dx, CudaElement type,
                                      cudaStream_t stream) {
  if (pool.outputs() * pool.channels == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    if (pool.channels % kPack<T> == 0) {
      launch_pool_backward<kPack<T>, T>(pool, gradient, chosen, dx, stream);
    } else {
      launch_pool_backward<1, T>(pool, gradient, chosen, dx, stream);
    }
  });
}

}  // namespace vla
