// SigLIP's vision tower (transformers, modeling_siglip.py and modeling_smolvlm.py) under its parameter names: patches, learned positions,
// pre-norm transformer. Images smaller or larger than the trained size use the positions at the same relative places, as SmolVLM does.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "worker/policies/nn/packed_weights.hpp"

namespace vla {

struct SiglipOptions {
  int64_t width = 1152;
  int64_t mlp_width = 3072;
  int64_t layers = 12;
  int64_t heads = 16;
  int64_t image_size = 224;
  int64_t patch_size = 32;
  double norm_eps = 1e-6;
};

// A LayerNorm that does not learn, of x plus the sum of `biases`, in x's dtype.
class FrozenNorm {
 public:
  at::Tensor forward(torch::nn::LayerNorm& norm, const at::Tensor& x, const std::vector<at::Tensor>& biases);

 private:
  PackedWeights weight_, bias_, offset_;
};

class SiglipLayer : public torch::nn::Module {
 public:
  explicit SiglipLayer(const SiglipOptions& options);
  at::Tensor forward(const at::Tensor& x);  // [N, patches, width]
  // The same in place on x [N, patches, width], in x's dtype and in fewer kernels, of a layer that does not learn. The stream is the sum of
  // x and of `biases` [width]: products add to x in place and leave their biases to the normalisations.
  void forward_frozen(at::Tensor& x, std::vector<at::Tensor>& biases);

 private:
  int64_t heads_;
  PackedWeights packed_qkv_, packed_qkv_bias_, packed_out_, packed_fc1_, packed_fc1_bias_, packed_fc2_;
  FrozenNorm frozen_norm1_, frozen_norm2_;
  torch::nn::Linear k_proj_{nullptr}, v_proj_{nullptr}, q_proj_{nullptr}, out_proj_{nullptr}, fc1_{nullptr}, fc2_{nullptr};
  torch::nn::LayerNorm layer_norm1_{nullptr}, layer_norm2_{nullptr};
};

class SiglipTower : public torch::nn::Module {
 public:
  explicit SiglipTower(const SiglipOptions& options);

  // [N, 3, H, W] in [-1, 1], any float dtype -> [N, H/patch * W/patch, width] row by row, in the parameters' dtype
  at::Tensor forward(const at::Tensor& images);
  void checkpoint_layers(bool on) { checkpoint_layers_ = on; }

 private:
  at::Tensor forward_frozen(const at::Tensor& images);
  const at::Tensor& positions(int64_t rows, int64_t columns, const at::TensorOptions& options);

  int64_t side_;  // patches along a side of the trained size
  bool checkpoint_layers_ = false;
  torch::nn::Conv2d patch_embedding_{nullptr};
  torch::nn::Embedding position_embedding_{nullptr};
  std::vector<std::shared_ptr<SiglipLayer>> layers_;
  torch::nn::LayerNorm post_layernorm_{nullptr};
  PackedWeights packed_patch_, packed_patch_bias_, packed_positions_;
  FrozenNorm frozen_post_norm_;
  std::map<std::pair<int64_t, int64_t>, at::Tensor> positions_;  // int64 [rows * columns], on the device of their last use
};

}  // namespace vla
