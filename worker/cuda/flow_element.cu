#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/cuda/flow_element.hpp"
#include "worker/cuda/warp_group.cuh"

namespace vla {
namespace {

constexpr int kThreads = 256;

// The threads of a block as the group of row_group.hpp.
struct BlockGroup {
  float* scratch;  // [kThreads / kWarp], shared

  __device__ int lane() const { return static_cast<int>(threadIdx.x); }
  __device__ constexpr int lanes() const { return kThreads; }
  __device__ float sum(float x) const {
    x = WarpGroup{}.sum(x);
    __syncthreads();  // the last sum has been read
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = x;
    __syncthreads();
    float total = 0;
    for (int warp = 0; warp < kThreads / kWarp; ++warp) total += scratch[warp];
    return total;
  }
};

template <class T>
__global__ void between_kernel(FlowBetween of) {
  const int64_t element = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (element < of.rows * of.elements_of_row()) flow_between<T>(of, element);
}

template <class T>
__global__ void sums_kernel(FlowLoss of, float* sums) {
  __shared__ float scratch[kThreads / kWarp];
  float own[kFlowSums];
  flow_sums<T>(BlockGroup{scratch}, of, blockIdx.x, own);
  if (threadIdx.x < kFlowSums) sums[int64_t{blockIdx.x} * kFlowSums + threadIdx.x] = own[threadIdx.x];
}

template <class T>
__global__ void gradient_kernel(FlowLoss of, const float* scales, T* gradient) {
  const int64_t element = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (element < of.rows * of.elements_of_row()) flow_gradient<T>(of, scales, element, gradient);
}

unsigned blocks_for(const FlowMatch& of) { return static_cast<unsigned>((of.rows * of.elements_of_row() + kThreads - 1) / kThreads); }

// launch(T{}) with the element's type.
template <class Launch>
cudaError_t dispatch(CudaElement type, Launch launch) {
  switch (type) {
    case CudaElement::kFloat64: return cudaErrorInvalidValue;
    case CudaElement::kFloat32: launch(float{}); break;
    case CudaElement::kBFloat16: launch(__nv_bfloat16{}); break;
    case CudaElement::kFloat16: launch(__half{}); break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t flow_between_cuda(const FlowBetween& of, CudaElement type, cudaStream_t stream) {
  if (of.rows == 0) return cudaSuccess;
  return dispatch(type, [&](auto element) { between_kernel<decltype(element)><<<blocks_for(of), kThreads, 0, stream>>>(of); });
}

cudaError_t flow_sums_cuda(const FlowLoss& of, float* sums, CudaElement type, cudaStream_t stream) {
  if (of.rows == 0) return cudaSuccess;
  return dispatch(type, [&](auto element) { sums_kernel<decltype(element)><<<static_cast<unsigned>(of.rows), kThreads, 0, stream>>>(of, sums); });
}

cudaError_t flow_gradient_cuda(const FlowLoss& of, const float* scales, void* gradient, CudaElement type, cudaStream_t stream) {
  if (of.rows == 0) return cudaSuccess;
  return dispatch(type, [&](auto element) {
    using T = decltype(element);
    gradient_kernel<T><<<blocks_for(of), kThreads, 0, stream>>>(of, scales, static_cast<T*>(gradient));
  });
}

}  // namespace vla
