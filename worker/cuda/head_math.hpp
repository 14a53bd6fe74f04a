// head_math.hpp on a GPU: a thread for a pair of numbers or a chunk of eight, which are aligned to 16 bytes. Asynchronous on `stream`; the
// current device must own the pointers. Returns the launch's status. float64 is not for them.
#pragma once

#include "worker/cuda/counter_random.hpp"
#include "worker/policies/nn/head_math.hpp"

namespace vla {

// Both in one launch; `second` may have no rows.
cudaError_t rotate_heads_cuda(const RotateHeads& first, const RotateHeads& second, CudaElement type, cudaStream_t stream);
cudaError_t silu_mul_cuda(const SiluMul& of, CudaElement type, cudaStream_t stream);

}  // namespace vla
