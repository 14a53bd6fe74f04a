// The batch norm of SyncBatchNorm2d with what follows it in few kernels (worker/cuda/batch_norm.hpp): the same statistics over the counted
// pixels of all ranks, the same running statistics. Images [N, C, H, W] with channels last.
#pragma once

#include "worker/policies/nn/batch_statistics.hpp"

namespace vla {

struct BatchNormState {
  at::Tensor weight, bias;  // parameters [C]
  at::Tensor running_mean, running_var;  // [C], of the parameters' dtype; move
  at::Tensor batches;  // int64 []; moves
  double eps = 0, momentum = 0;
};

// The norm of x in training, plus the residual unless that is undefined, through a relu if told.
at::Tensor fused_batch_norm(const at::Tensor& x, const BatchNormState& state, const BatchStatistics& batch, const at::Tensor& residual, bool relu);

}  // namespace vla
