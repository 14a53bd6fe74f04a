// The conditional U-Net over time of diffusion policy (Chi et al. 2023): residual blocks of convolutions that a condition scales and
// shifts (FiLM). Under LeRobot's parameter names or the original's, which differ in two places. The skip of the first level is not used,
// as in the references. Small weights are drawn from LibTorch's default CPU generator in LeRobot's order, large ones by ParallelRandomInit.
// Made in fast mode, convolutions' weights are stored for products; used in it, activations are [B, steps, channels], convolutions products, and norms one kernel with what
// follows them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

namespace vla {

enum class UnetNames {
  kLeRobot,  // conv1.block, conv2.block; down_modules.0.2.weight
  kOriginal,  // blocks.0.block, blocks.1.block; down_modules.0.2.conv.weight
};

struct Unet1dOptions {
  int64_t channels = 0;  // of input and output: the actions'
  int64_t condition_dim = 0;
  std::vector<int64_t> down_dims = {};  // channels by level; each but the last halves the steps
  int64_t kernel_size = 5;
  int64_t groups = 8;  // of the group norms
  int64_t step_embed_dim = 128;
  bool scale_modulation = true;  // false: the condition only shifts
  UnetNames names = UnetNames::kLeRobot;
};

class Unet1d : public torch::nn::Module {
 public:
  explicit Unet1d(const Unet1dOptions& options);
  // x float [B, steps, channels], timesteps int64 [B], condition [B, condition_dim] -> [B, steps, channels].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& timesteps, const at::Tensor& condition);
  void checkpoint_blocks(bool on) { checkpoint_blocks_ = on; }  // keep no activations inside blocks for backward

  // float [B, step_embed_dim]: what the network is told of the timesteps.
  at::Tensor step_embedding(const at::Tensor& timesteps);

 private:
  class ConvBlock;
  class Block;
  using Resample = std::function<at::Tensor(const at::Tensor&)>;  // of activations as the mode has them
  struct Level {
    std::shared_ptr<Block> first, second;
    Resample resample;  // empty at the bottom
  };

  at::Tensor run(const std::shared_ptr<Block>& block, const at::Tensor& x, const at::Tensor& condition);
  Level add_level(torch::nn::Module& parent, int64_t in, int64_t out, const Unet1dOptions& options);

  bool checkpoint_blocks_ = false;
  int64_t step_embed_dim_;
  torch::nn::Sequential step_encoder_{nullptr}, final_conv_{nullptr};
  std::vector<Level> down_, up_;
  std::vector<std::shared_ptr<Block>> middle_;
};

}  // namespace vla
