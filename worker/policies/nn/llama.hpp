// The blocks of Llama's decoder (transformers, modeling_llama.py) under its parameter names, cut where models of robot actions need it:
// a layer's keys and values are computed apart from its attention, so that another stream of tokens can attend to them and sampling
// keeps them. Parameters may be of another dtype than the residual stream; attention is float32 inside.
#pragma once

#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "worker/policies/nn/grouped_attention.hpp"
#include "worker/policies/nn/packed_weights.hpp"
#include "worker/policies/nn/rotary.hpp"

namespace vla {

struct LlamaOptions {
  int64_t width = 4096;
  int64_t mlp_width = 11008;
  int64_t heads = 32;
  int64_t kv_heads = 32;
  int64_t head_dim = 128;
  double norm_eps = 1e-6;

  int64_t kv_width() const { return kv_heads * head_dim; }
};

class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x);  // [..., width]
  const at::Tensor& weight() const { return weight_; }
  double eps() const { return eps_; }

 private:
  double eps_;
  at::Tensor weight_;
};

// A residual stream whose last addition has not been made: x + added, both [B, L, width]. `added` may be undefined.
struct LayerStream {
  at::Tensor x, added;
};

class LlamaLayer : public torch::nn::Module {
 public:
  // `memory_width` > 0: keys and values are linear functions of another model's, flattened to this width. Those two are plain
  // torch.nn.Linear, all other matrices are drawn from N(0, 0.02).
  explicit LlamaLayer(const LlamaOptions& options, int64_t memory_width = 0);

  at::Tensor normalize(const at::Tensor& x);  // for the following three, in the parameters' dtype
  KeyValue key_value(const at::Tensor& normalized, const RotaryTable& rotary);
  KeyValue key_value_of(const KeyValue& memory);  // of a layer with memory_width
  at::Tensor query(const at::Tensor& normalized, const RotaryTable& rotary);
  // Attention's projection and the MLP on the residual stream x [B, L, width]. The result has the parameters' dtype.
  at::Tensor finish(const at::Tensor& x, const at::Tensor& attention);

  // The same in fewer kernels, for fast mode: additions are left to the next normalisation, and a layer that does not learn has larger
  // products, in one dtype: its own or autocast's.
  struct Weights {
    at::Tensor out, down, norm, mlp_norm;
    at::Tensor qkv = {}, gate_up = {};  // of a layer that does not learn
  };
  struct Projected {
    at::Tensor query;
    KeyValue memory;
  };
  Weights weights();
  at::Tensor enter(const Weights& weights, LayerStream& stream);  // -> normalized
  Projected project(const Weights& weights, const at::Tensor& normalized, const RotaryTable& rotary);
  void leave(const Weights& weights, LayerStream& stream, const at::Tensor& attention);
  at::ScalarType compute_dtype() const { return vla::compute_dtype(q_proj_->weight); }

 private:
  int64_t head_dim_, kv_heads_;
  PackedWeights packed_qkv_, packed_out_, packed_gate_up_, packed_down_, packed_norm_, packed_mlp_norm_;
  torch::nn::Linear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, o_proj_{nullptr};
  torch::nn::Linear gate_proj_{nullptr}, up_proj_{nullptr}, down_proj_{nullptr};
  std::shared_ptr<RmsNorm> input_layernorm_, post_attention_layernorm_;
};

torch::nn::Linear linear_without_bias(int64_t in, int64_t out);

// transformers' initial weights of matrices: N(0, 0.02); biases are 0.
void init_as_transformers(torch::nn::Module& module);

}  // namespace vla
