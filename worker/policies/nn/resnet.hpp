// ResNet-18 without its classifier (He et al., "Deep residual learning for image recognition"), under torchvision's names. Weights are
// drawn from LibTorch's default CPU generator as torchvision draws them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>

#include "worker/policies/nn/batch_statistics.hpp"

namespace vla {

enum class ResNetNorm {
  kFrozenBatch,  // batch norms whose four tensors are buffers
  kBatch,  // batch norms that train, over the global batch
  kGroup,  // group norms of 16 channels a group
};

enum class ResNetNames {
  kTorchvision,  // conv1, bn1, layer1 …
  kSequential,  // 0, 1, 4 …: torch.nn.Sequential(*resnet.children())
};

class FrozenBatchNorm2d : public torch::nn::Module {
 public:
  explicit FrozenBatchNorm2d(int64_t channels);
  at::Tensor forward(const at::Tensor& x);  // [B, C, H, W]

  // It is x * scale + shift: Real [C], as channel_affine() takes them of `x`.
  struct Affine {
    at::Tensor scale, shift;
  };
  const Affine& affine(const at::Tensor& x);

 private:
  at::Tensor weight_, bias_, running_mean_, running_var_;  // [C]
  Affine affine_;
  std::vector<std::pair<const void*, uint32_t>> affine_of_;  // the buffers that affine_ was made of: places and versions
};

class BasicBlock;

class ResNet18 : public torch::nn::Module {
 public:
  static constexpr int64_t kChannels = 512;
  // The norm of x, plus the residual unless that is undefined, through a relu if told.
  using Norm = std::function<at::Tensor(const at::Tensor& x, const BatchStatistics& batch, const at::Tensor& residual, bool relu)>;

  explicit ResNet18(ResNetNorm norm = ResNetNorm::kFrozenBatch, ResNetNames names = ResNetNames::kTorchvision);
  // float [N, 3, H, W], normalized -> [N, 512, ceil(H/32), ceil(W/32)], the output of layer4. `batch` is what batch norms that train
  // are told.
  at::Tensor forward(const at::Tensor& images, const BatchStatistics& batch = {});
  // Keep no activations inside blocks for backward. Not for batch norms that train: recomputing would count the batch twice.
  void checkpoint_blocks(bool on) { checkpoint_blocks_ = on; }

  // Reads a safetensors file with the state dict of a torchvision ResNet-18; its classifier is ignored. Throws Error with
  // the file and every name that is missing, unknown or of another shape.
  void load_torchvision(const std::string& path);

 private:
  bool checkpoint_blocks_ = false;
  ResNetNorm norm_;
  ResNetNames names_;
  torch::nn::Conv2d conv1_{nullptr};
  Norm bn1_;
  std::shared_ptr<FrozenBatchNorm2d> frozen_stem_;  // of bn1_, if it is one
  std::vector<std::shared_ptr<BasicBlock>> blocks_;
};

}  // namespace vla
