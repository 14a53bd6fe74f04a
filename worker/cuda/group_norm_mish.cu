#include "worker/cuda/group_norm_mish.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

constexpr unsigned kWarp = 32, kMostThreads = 256;

// The threads of a block, a multiple of a warp.
struct Block {
  __device__ int64_t begin() const { return threadIdx.x; }
  __device__ int64_t size() const { return blockDim.x; }
  // In a fixed order; every thread gets it.
  template <class R>
  __device__ R sum(R value) const {
    __shared__ R of_warp[kMostThreads / kWarp];
    for (unsigned offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffU, value, offset);
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
    __syncthreads();
    R all = 0;
    for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) all += of_warp[warp];
    __syncthreads();  // the memory is used again by the next sum
    return all;
  }
};

template <class T, class P>
__global__ void forward_kernel(GroupNormMish norm, GroupNormMish::Forward<T, P> of) {
  norm.forward(of, blockIdx.x / norm.groups, blockIdx.x % norm.groups, Block{});
}

template <class T, class P>
__global__ void backward_kernel(GroupNormMish norm, GroupNormMish::Backward<T, P> of) {
  norm.backward(of, blockIdx.x / norm.groups, blockIdx.x % norm.groups, Block{});
}

// f(element of x, element of the parameters).
template <class F>
cudaError_t with_elements(CudaElement type, bool real_parameters, const F& f) {
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    if (real_parameters) {
      f(T{}, Real<T>{});
    } else {
      f(T{}, T{});
    }
  });
}

unsigned threads_of(const GroupNormMish& norm) {
  const auto channels = static_cast<unsigned>(std::min<int64_t>(norm.group_channels(), kMostThreads));
  return (channels + kWarp - 1) / kWarp * kWarp;
}

}  // namespace

cudaError_t group_norm_mish_forward_cuda(const GroupNormMish& norm, const GroupNormMishTensors& tensors, CudaElement type,
                                         bool real_parameters, cudaStream_t stream) {
  if (norm.rows * norm.steps * norm.channels == 0) return cudaSuccess;
  return with_elements(type, real_parameters, [&](auto element, auto parameter) {
    using T = decltype(element);
    using P = decltype(parameter);
    forward_kernel<T, P><<<static_cast<unsigned>(norm.rows * norm.groups), threads_of(norm), 0, stream>>>(norm, tensors.forward<T, P>());
  });
}

cudaError_t group_norm_mish_backward_cuda(const GroupNormMish& norm, const GroupNormMishTensors& tensors, CudaElement type,
                                          bool real_parameters, cudaStream_t stream) {
  if (norm.rows * norm.steps * norm.channels == 0) return cudaSuccess;
  return with_elements(type, real_parameters, [&](auto element, auto parameter) {
    using T = decltype(element);
    using P = decltype(parameter);
    backward_kernel<T, P><<<static_cast<unsigned>(norm.rows * norm.groups), threads_of(norm), 0, stream>>>(norm, tensors.backward<T, P>());
  });
}

}  // namespace vla
