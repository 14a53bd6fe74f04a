#include "worker/cuda/flow_element.hpp"

#include "worker/cuda/dispatch.cuh"
#include "worker/cuda/team.cuh"

namespace vla {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void between_kernel(FlowBetween of) {
  const int64_t element = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (element < of.rows * of.elements_of_row()) flow_between<T>(of, element);
}

template <class T>
__global__ void sums_kernel(FlowLoss of, float* sums) {
  float own[kFlowSums];
  flow_sums<T>(Block<kThreads>{}, of, blockIdx.x, own);
  if (threadIdx.x < kFlowSums) sums[int64_t{blockIdx.x} * kFlowSums + threadIdx.x] = own[threadIdx.x];
}

template <class T>
__global__ void gradient_kernel(FlowLoss of, const float* scales, T* gradient) {
  const int64_t element = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (element < of.rows * of.elements_of_row()) flow_gradient<T>(of, scales, element, gradient);
}

unsigned blocks_for(const FlowMatch& of) { return static_cast<unsigned>((of.rows * of.elements_of_row() + kThreads - 1) / kThreads); }

}  // namespace

cudaError_t flow_between_cuda(const FlowBetween& of, CudaElement type, cudaStream_t stream) {
  if (of.rows == 0) return cudaSuccess;
  return with_narrow_element(type, [&](auto element) { between_kernel<decltype(element)><<<blocks_for(of), kThreads, 0, stream>>>(of); });
}

cudaError_t flow_sums_cuda(const FlowLoss& of, float* sums, CudaElement type, cudaStream_t stream) {
  if (of.rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(of.rows);
  return with_narrow_element(type, [&](auto element) { sums_kernel<decltype(element)><<<blocks, kThreads, 0, stream>>>(of, sums); });
}

cudaError_t flow_gradient_cuda(const FlowLoss& of, const float* scales, void* gradient, CudaElement type, cudaStream_t stream) {
  if (of.rows == 0) return cudaSuccess;
  return with_narrow_element(type, [&](auto element) {
    using T = decltype(element);
    gradient_kernel<T><<<blocks_for(of), kThreads, 0, stream>>>(of, scales, static_cast<T*>(gradient));
  });
}

}  // namespace vla
