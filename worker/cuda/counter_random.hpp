// CounterFill on a GPU: one thread for a block of four elements. Asynchronous on `stream`; the current device must own the
// pointers. Returns the launch's status.
#pragma once

#include <cuda_runtime_api.h>

#include "worker/policies/nn/counter_fill.hpp"

namespace vla {

enum class CudaElement : uint8_t { kFloat64, kFloat32, kBFloat16, kFloat16 };

cudaError_t counter_fill_cuda(const CounterFill& fill, const void* input, void* output, CudaElement type, cudaStream_t stream);

}  // namespace vla
