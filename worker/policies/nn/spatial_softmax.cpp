#include "worker/policies/nn/spatial_softmax.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/channels_last.hpp"

namespace vla {

SpatialSoftmax::SpatialSoftmax(int64_t channels, int64_t height, int64_t width, int64_t keypoints) {
  nets_ = register_module("nets", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, keypoints, 1)));
  store_channels_last(*nets_);
  // In float64 first, as numpy has it.
  const at::Tensor x = torch::linspace(-1, 1, width, at::kDouble), y = torch::linspace(-1, 1, height, at::kDouble);
  const at::Tensor grid = at::stack({x.unsqueeze(0).expand({height, width}), y.unsqueeze(1).expand({height, width})}, -1);
  pos_grid_ = register_buffer("pos_grid", grid.reshape({height * width, 2}).to(at::kFloat));
}

at::Tensor SpatialSoftmax::forward(const at::Tensor& features) {
  const at::Tensor attention = nets_(features).flatten(2).softmax(-1);  // [N, keypoints, pixels]
  return at::matmul(attention, pos_grid_.to(attention.scalar_type())).flatten(1);
}

}  // namespace vla
