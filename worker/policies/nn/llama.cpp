#include "worker/policies/nn/llama.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/fast_linear.hpp"
#include "worker/policies/nn/fused_norm.hpp"
#include "worker/policies/nn/precision.hpp"
#include "worker/policies/nn/silu_mul.hpp"

namespace vla {

RmsNorm::RmsNorm(int64_t width, double eps) : eps_(eps) { weight_ = register_parameter("weight", torch::ones({width})); }

at::Tensor RmsNorm::forward(const at::Tensor& x) {
  const at::Tensor wide = at_least_float(x);
  return weight_ * (wide * (wide.square().mean(-1, /*keepdim=*/true) + eps_).rsqrt()).to(x.scalar_type());
}

torch::nn::Linear linear_without_bias(int64_t in, int64_t out) { return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false)); }

void init_as_transformers(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (auto& entry : module.named_parameters()) {
    if (entry.value().dim() > 1) entry.value().normal_(0, 0.02);
    if (entry.key().ends_with("bias")) entry.value().zero_();
  }
}

LlamaLayer::LlamaLayer(const LlamaOptions& options, int64_t memory_width) : head_dim_(options.head_dim), kv_heads_(options.kv_heads) {
  const int64_t width = options.width, kv_input = memory_width > 0 ? memory_width : width;
  const auto attention = register_module("self_attn", std::make_shared<torch::nn::Module>());
  q_proj_ = attention->register_module("q_proj", linear_without_bias(width, options.heads * head_dim_));
  k_proj_ = attention->register_module("k_proj", linear_without_bias(kv_input, options.kv_width()));
  v_proj_ = attention->register_module("v_proj", linear_without_bias(kv_input, options.kv_width()));
  o_proj_ = attention->register_module("o_proj", linear_without_bias(options.heads * head_dim_, width));
  const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
  gate_proj_ = mlp->register_module("gate_proj", linear_without_bias(width, options.mlp_width));
  up_proj_ = mlp->register_module("up_proj", linear_without_bias(width, options.mlp_width));
  down_proj_ = mlp->register_module("down_proj", linear_without_bias(options.mlp_width, width));
  input_layernorm_ = register_module("input_layernorm", std::make_shared<RmsNorm>(width, options.norm_eps));
  post_attention_layernorm_ = register_module("post_attention_layernorm", std::make_shared<RmsNorm>(width, options.norm_eps));
  for (torch::nn::Linear linear : {q_proj_, k_proj_, v_proj_, o_proj_, gate_proj_, up_proj_, down_proj_}) {
    if (memory_width == 0 || (linear.get() != k_proj_.get() && linear.get() != v_proj_.get())) init_as_transformers(*linear);
  }
}

at::Tensor LlamaLayer::normalize(const at::Tensor& x) { return input_layernorm_->forward(x).to(q_proj_->weight.scalar_type()); }

at::Tensor LlamaLayer::query(const at::Tensor& normalized, const RotaryTable& rotary) {
  return rotate_heads(fast_linear(normalized, q_proj_->weight).unflatten(-1, {-1, head_dim_}), {}, rotary, kv_heads_).query;
}

KeyValue LlamaLayer::key_value(const at::Tensor& normalized, const RotaryTable& rotary) {
  return {rotate(k_proj_(normalized).unflatten(-1, {-1, head_dim_}), rotary), v_proj_(normalized).unflatten(-1, {-1, head_dim_})};
}

KeyValue LlamaLayer::key_value_of(const KeyValue& memory) {
  const auto project = [&](const torch::nn::Linear& linear, const at::Tensor& x) {
    return fast_linear(x.to(linear->weight.scalar_type()).flatten(-2), linear->weight).unflatten(-1, {-1, head_dim_});
  };
  return {project(k_proj_, memory.key), project(v_proj_, memory.value)};
}

LlamaLayer::Weights LlamaLayer::weights() {
  // Attention's result lies in memory with the heads of a group apart: the weights follow, which are smaller.
  const auto as_attention = [&](const at::Tensor& out) { return out.view({out.size(0), kv_heads_, -1, head_dim_}).transpose(1, 2).flatten(1).contiguous(); };
  const bool one_input = k_proj_->weight.size(1) == q_proj_->weight.size(1);
  if (!one_input || !is_frozen(*this)) return {.out = as_attention(o_proj_->weight), .down = down_proj_->weight, .norm = input_layernorm_->weight(), .mlp_norm = post_attention_layernorm_->weight()};
  const at::ScalarType dtype = compute_dtype();
  return {.out = packed_out_.get({o_proj_->weight}, dtype, as_attention),
          .down = packed_down_.get({down_proj_->weight}, dtype),
          .norm = packed_norm_.get({input_layernorm_->weight()}, dtype),
          .mlp_norm = packed_mlp_norm_.get({post_attention_layernorm_->weight()}, dtype),
          .qkv = packed_qkv_.get({q_proj_->weight, k_proj_->weight, v_proj_->weight}, dtype),
          .gate_up = packed_gate_up_.get({gate_proj_->weight, up_proj_->weight}, dtype)};
}

at::Tensor LlamaLayer::enter(const Weights& weights, LayerStream& stream) {
  AddNorm entered = add_rms_norm(stream.x, stream.added, weights.norm, input_layernorm_->eps());
  stream = {entered.sum, {}};
  return entered.normalized;
}

LlamaLayer::Projected LlamaLayer::project(const Weights& weights, const at::Tensor& normalized, const RotaryTable& rotary) {
  const auto heads = [&](const at::Tensor& x) { return x.unflatten(-1, {-1, head_dim_}); };
  at::Tensor query, key, value;
  if (weights.qkv.defined()) {
    const int64_t kv_width = kv_heads_ * head_dim_;
    const auto parts = at::linear(normalized, weights.qkv).split_with_sizes({weights.qkv.size(0) - 2 * kv_width, kv_width, kv_width}, -1);
    query = parts[0], key = parts[1], value = parts[2];
  } else {
    query = fast_linear(normalized, q_proj_->weight);
    key = fast_linear(normalized, k_proj_->weight);
    value = fast_linear(normalized, v_proj_->weight);
  }
  const Rotated rotated = rotate_heads(heads(query), heads(key), rotary, kv_heads_);
  return {rotated.query, {rotated.key, heads(value)}};
}

void LlamaLayer::leave(const Weights& weights, LayerStream& stream, const at::Tensor& attention) {
  const at::Tensor mixed = attention.transpose(2, 3).flatten(2);
  const AddNorm middle = add_rms_norm(stream.x, at::linear(mixed, weights.out), weights.mlp_norm, post_attention_layernorm_->eps());
  const at::Tensor input = middle.normalized.flatten(0, 1);
  at::Tensor gate, up;
  if (weights.gate_up.defined()) {
    const auto halves = at::linear(input, weights.gate_up).chunk(2, -1);
    gate = halves[0], up = halves[1];
  } else {
    gate = fast_linear(input, gate_proj_->weight);
    up = fast_linear(input, up_proj_->weight);
  }
  stream = {middle.sum, fast_linear(silu_mul(gate, up), weights.down).view_as(middle.sum)};
}

at::Tensor LlamaLayer::finish(const at::Tensor& x, const at::Tensor& attention) {
  const at::Tensor mixed = attention.flatten(2);
  const at::ScalarType dtype = o_proj_->weight.scalar_type();
  const at::Tensor middle = (o_proj_(mixed.to(dtype)) + x).to(dtype);
  const at::Tensor input = post_attention_layernorm_->forward(middle);
  return down_proj_(at::silu(gate_proj_(input)) * up_proj_(input)) + middle;
}

}  // namespace vla
