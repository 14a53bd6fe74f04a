// norm_row.hpp on a GPU: a warp for a row. Rows are at most kWidestNorm wide. Asynchronous on `stream`; the current device must own the
// pointers, which are aligned to 16 bytes. Returns the launch's status. float64 is not for them.
#pragma once

#include "worker/cuda/counter_random.hpp"
#include "worker/policies/nn/norm_row.hpp"

namespace vla {

cudaError_t norm_forward_cuda(const NormForward& of, CudaElement type, cudaStream_t stream);

// Sums over some of the rows, each made by one warp in the order of its rows: the same bits every time.
int64_t norm_partial_sums(int64_t rows);
// `partial` float32 [norm_partial_sums(rows), width], or null if the weight's gradient is not wanted; grad_weight [width] is their sum.
cudaError_t norm_backward_cuda(const NormBackward& of, float* partial, void* grad_weight, CudaElement type, cudaStream_t stream);

}  // namespace vla
