// Batch normalization over the global batch: training statistics are those of the counted rows of all ranks, so that N ranks
// train as one. Parameters, buffers, eps, momentum and the unbiased running variance are torch.nn.BatchNorm2d's. Statistics are
// float32 (float64 for float64 inputs), merged over ranks in float64; one all-reduce in forward and one in backward. The statistics of
// a micro-batch are its own: gradient accumulation changes them, as it does with any batch norm. No second derivatives.
#pragma once

#include <torch/nn/module.h>

#include "worker/policies/nn/batch_statistics.hpp"

namespace vla {

class SyncBatchNorm2d : public torch::nn::Module {
 public:
  explicit SyncBatchNorm2d(int64_t channels, double eps = 1e-5, double momentum = 0.1);

  // x float [N, C, H, W] -> the same. N is a multiple of the statistics' rows B: a row's images (frames) stand together. In eval mode
  // the running statistics are used and `batch` is not.
  at::Tensor forward(const at::Tensor& x, const BatchStatistics& batch);
  // The same, plus the residual unless that is undefined, through a relu if told. In fast mode few kernels do all of it.
  at::Tensor forward(const at::Tensor& x, const BatchStatistics& batch, const at::Tensor& residual, bool relu);

  // LibTorch would cast num_batches_tracked too.
  using Module::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

 private:
  double eps_, momentum_;
  at::Tensor weight_, bias_;  // [C]
  at::Tensor running_mean_, running_var_;  // [C]
  at::Tensor num_batches_tracked_;  // int64 []
};

}  // namespace vla
