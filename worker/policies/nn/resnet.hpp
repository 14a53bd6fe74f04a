// ResNet-18 without its classifier and with frozen batch norm (He et al., "Deep residual learning for image recognition"), under
// torchvision's names. Convolutions train; the norms' four tensors are buffers. Weights are drawn from LibTorch's default CPU
// generator as torchvision draws them.
#pragma once

#include <string>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

namespace vla {

class FrozenBatchNorm2d : public torch::nn::Module {
 public:
  explicit FrozenBatchNorm2d(int64_t channels);
  at::Tensor forward(const at::Tensor& x);  // [B, C, H, W]

 private:
  at::Tensor weight_, bias_, running_mean_, running_var_;  // [C]
};

class ResNet18 : public torch::nn::Module {
 public:
  static constexpr int64_t kChannels = 512;

  ResNet18();
  // float [B, 3, H, W], normalized -> [B, 512, ceil(H/32), ceil(W/32)], the output of layer4.
  at::Tensor forward(const at::Tensor& images);
  void checkpoint_blocks(bool on) { checkpoint_blocks_ = on; }  // keep no activations inside blocks for backward

  // Reads a safetensors file with the state dict of a torchvision ResNet-18; its classifier is ignored. Throws Error with the
  // file and every name that is missing, unknown or of another shape.
  void load_torchvision(const std::string& path);

 private:
  bool checkpoint_blocks_ = false;
  torch::nn::Conv2d conv1_{nullptr};
  std::shared_ptr<FrozenBatchNorm2d> bn1_;
  torch::nn::Sequential layer1_{nullptr}, layer2_{nullptr}, layer3_{nullptr}, layer4_{nullptr};
};

}  // namespace vla
