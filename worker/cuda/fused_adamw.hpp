// The optimizer's passes over a table of parameters on a GPU, one launch each whatever the number of parameters; sums are taken in a fixed
// order. Asynchronous on `stream`, and all that changes between steps is read from the device: a captured graph may repeat them. The
// current device must own the pointers. Return the launch's status.
#pragma once

#include <cuda_runtime_api.h>

#include "worker/optim/update_arithmetic.hpp"

namespace vla {

// On the device.
struct UpdateTableView {
  const UpdateRow* rows = nullptr;
  int64_t row_count = 0;
  const UpdateChunk* chunks = nullptr;
  int64_t chunk_count = 0;
};

// norm: float32 scalar, of all gradients together; factor: what clipping to `limit` multiplies them with, 1 where that is 0.
// partial: float32 [chunk_count], scratch.
cudaError_t gradient_norm_cuda(const UpdateTableView& table, float limit, float* partial, float* norm, float* factor, cudaStream_t stream);

// The same in two halves. sum: float64 scalar, of the squares.
cudaError_t sum_of_squares_cuda(const UpdateTableView& table, float* partial, double* sum, cudaStream_t stream);
cudaError_t norm_of_cuda(const double* sum, float limit, float* norm, float* factor, cudaStream_t stream);

// skip = 1 where `norm` is not finite or `found_inf` not 0, both optional, else 0; counted in `skipped`. Else every row's step goes up by one.
cudaError_t begin_update_cuda(const UpdateTableView& table, const float* norm, const float* found_inf, float* skip, float* skipped,
                              cudaStream_t stream);

cudaError_t update_cuda(const UpdateTableView& table, const UpdateRule& rule, cudaStream_t stream);

}  // namespace vla
