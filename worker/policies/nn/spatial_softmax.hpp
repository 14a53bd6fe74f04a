// Where each channel of a feature map is active: the expected pixel under a softmax over the pixels (Finn et al., "Deep spatial
// autoencoders for visuomotor learning"), after a 1x1 convolution to one channel a keypoint. LeRobot's names and numbers.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>

namespace vla {

class SpatialSoftmax : public torch::nn::Module {
 public:
  SpatialSoftmax(int64_t channels, int64_t height, int64_t width, int64_t keypoints);
  at::Tensor forward(const at::Tensor& features);  // [N, channels, height, width] -> [N, 2 * keypoints]: x, y of each, in [-1, 1]

 private:
  torch::nn::Conv2d nets_{nullptr};
  at::Tensor pos_grid_;  // [height * width, 2]: x, y of each pixel
};

}  // namespace vla
