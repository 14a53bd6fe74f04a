// Transformer blocks of DETR and ACT: positions are added to queries and keys at every layer, dropout also on attention weights.
// Sequence-first [S, B, D], so that heads fold into the batch without copies. Names and initialisation are those of
// torch.nn.MultiheadAttention and LeRobot's ACTEncoder/ACTDecoder. `random` null: no dropout. Weights are drawn from LibTorch's
// default CPU generator, in the reference's order. In fast mode attention is one kernel; on a GPU its dropout is then the kernel's own,
// which does not follow the position in the global batch, unless layers are recomputed in backward: they must draw the same again.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "worker/policies/nn/counter_random.hpp"

namespace vla {

struct TransformerOptions {
  int64_t dim = 0;
  int64_t heads = 1;
  int64_t feedforward_dim = 0;
  double dropout = 0;
  bool pre_norm = false;
  bool gelu = false;  // else relu
};

class MultiheadAttention : public torch::nn::Module {
 public:
  MultiheadAttention(const TransformerOptions& options, const std::string& path);
  // query [L, B, D]; key, value [S, B, D]; key_is_pad bool [B, S] or undefined. Returns [L, B, D].
  at::Tensor forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& key_is_pad,
                     const StepRandom* random);
  void is_recomputed(bool on) { is_recomputed_ = on; }

 private:
  bool is_recomputed_ = false;
  int64_t heads_;
  double dropout_;
  uint32_t stream_;
  at::Tensor in_proj_weight_, in_proj_bias_;  // [3D, D], [3D]
  torch::nn::Linear out_proj_{nullptr};
};

class EncoderLayer : public torch::nn::Module {
 public:
  EncoderLayer(const TransformerOptions& options, const std::string& path);
  at::Tensor forward(at::Tensor x, const at::Tensor& position, const at::Tensor& key_is_pad, const StepRandom* random);

 private:
  TransformerOptions options_;
  uint32_t stream_hidden_, stream1_, stream2_;
  std::shared_ptr<MultiheadAttention> self_attn_;
  torch::nn::Linear linear1_{nullptr}, linear2_{nullptr};
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
};

class DecoderLayer : public torch::nn::Module {
 public:
  DecoderLayer(const TransformerOptions& options, const std::string& path);
  at::Tensor forward(at::Tensor x, const at::Tensor& memory, const at::Tensor& position, const at::Tensor& memory_position,
                     const StepRandom* random);

 private:
  TransformerOptions options_;
  uint32_t stream_hidden_, stream1_, stream2_, stream3_;
  std::shared_ptr<MultiheadAttention> self_attn_, multihead_attn_;
  torch::nn::Linear linear1_{nullptr}, linear2_{nullptr};
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr}, norm3_{nullptr};
};

class TransformerEncoder : public torch::nn::Module {
 public:
  // `path` is the module's name in the model: streams of randomness are derived from it.
  TransformerEncoder(const TransformerOptions& options, int64_t layers, const std::string& path);
  // x [S, B, D]; position broadcastable to it; key_is_pad bool [B, S] or undefined.
  at::Tensor forward(at::Tensor x, const at::Tensor& position, const at::Tensor& key_is_pad, const StepRandom* random);
  void checkpoint_layers(bool on);  // keep no activations inside layers for backward

 private:
  bool checkpoint_layers_ = false;
  std::vector<std::shared_ptr<EncoderLayer>> layers_;
  torch::nn::LayerNorm norm_{nullptr};  // with pre_norm only
};

class TransformerDecoder : public torch::nn::Module {
 public:
  TransformerDecoder(const TransformerOptions& options, int64_t layers, const std::string& path);
  // x [L, B, D], memory [S, B, D], positions broadcastable to them.
  at::Tensor forward(at::Tensor x, const at::Tensor& memory, const at::Tensor& position, const at::Tensor& memory_position,
                     const StepRandom* random);
  void checkpoint_layers(bool on);

 private:
  bool checkpoint_layers_ = false;
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  torch::nn::LayerNorm norm_{nullptr};
};

// Xavier-uniform on every parameter of two or more dimensions, in order of registration.
void xavier_init(torch::nn::Module& module);

}  // namespace vla
