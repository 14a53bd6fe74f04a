#include "worker/cuda/transformer_dropout.hpp"

#include "worker/cuda/dispatch.cuh"
#include "worker/cuda/team.cuh"

namespace vla {
namespace {

constexpr int kThreads = 256;

__device__ int64_t token_of_warp() { return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp; }

template <class T>
__global__ void add_norm_kernel(DropoutMask mask, DropoutNorm<T> of) {
  if (token_of_warp() < mask.tokens()) add_dropout_norm(mask, of, token_of_warp(), Warp{});
}

template <class T>
__global__ void add_norm_backward_kernel(DropoutMask mask, DropoutNormBackward<T> of) {
  if (token_of_warp() < mask.tokens()) add_dropout_norm_backward(mask, of, token_of_warp(), Warp{});
}

// A thread for four elements.
__device__ int64_t own_four() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

template <class T>
__global__ void relu_dropout_kernel(DropoutMask mask, const T* x, T* y) {
  const auto of_token = static_cast<uint32_t>(mask.fill.inner / 4);
  const int64_t four = own_four();
  if (four >= mask.tokens() * of_token) return;
  relu_dropout(mask, x, y, static_cast<uint32_t>(four) / of_token, static_cast<uint32_t>(four) % of_token);
}

template <class T>
__global__ void relu_dropout_backward_kernel(DropoutMask mask, const T* gradient, const T* y, T* dx) {
  const int64_t four = own_four();
  if (four < mask.tokens() * (mask.fill.inner / 4)) relu_dropout_backward(mask, gradient, y, dx, 4 * four);
}

unsigned blocks_for(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

}  // namespace

cudaError_t relu_dropout_cuda(const DropoutMask& mask, const void* x, void* y, CudaElement type, cudaStream_t stream) {
  const int64_t fours = mask.tokens() * (mask.fill.inner / 4);
  if (fours == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    relu_dropout_kernel<T><<<blocks_for(fours), kThreads, 0, stream>>>(mask, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

cudaError_t relu_dropout_backward_cuda(const DropoutMask& mask, const void* gradient, const void* y, void* dx, CudaElement type, cudaStream_t stream) {
  const int64_t fours = mask.tokens() * (mask.fill.inner / 4);
  if (fours == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    relu_dropout_backward_kernel<T><<<blocks_for(fours), kThreads, 0, stream>>>(mask, static_cast<const T*>(gradient), static_cast<const T*>(y),
                                                                                static_cast<T*>(dx));
  });
}

cudaError_t add_dropout_norm_cuda(const DropoutMask& mask, const DropoutNormTensors& tensors, CudaElement type, cudaStream_t stream) {
  if (mask.tokens() == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    add_norm_kernel<T><<<blocks_for(mask.tokens() * kWarp), kThreads, 0, stream>>>(mask, tensors.forward<T>());
  });
}

cudaError_t add_dropout_norm_backward_cuda(const DropoutMask& mask, const DropoutNormTensors& tensors, CudaElement type, cudaStream_t stream) {
  if (mask.tokens() == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    add_norm_backward_kernel<T><<<blocks_for(mask.tokens() * kWarp), kThreads, 0, stream>>>(mask, tensors.backward<T>());
  });
}

}  // namespace vla
