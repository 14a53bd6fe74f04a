// flow_element.hpp on a GPU. Asynchronous on `stream`; the current device must own the pointers. Returns the launch's status. float64 is
// not for them.
#pragma once

#include "worker/cuda/counter_random.hpp"
#include "worker/policies/nn/flow_element.hpp"

namespace vla {

cudaError_t flow_between_cuda(const FlowBetween& of, CudaElement type, cudaStream_t stream);
cudaError_t flow_sums_cuda(const FlowLoss& of, float* sums, CudaElement type, cudaStream_t stream);  // sums [rows, kFlowSums]
cudaError_t flow_gradient_cuda(const FlowLoss& of, const float* scales, void* gradient, CudaElement type, cudaStream_t stream);

}  // namespace vla
