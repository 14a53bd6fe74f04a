#include "worker/policies/nn/llama.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/precision.hpp"

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

LlamaLayer::LlamaLayer(const LlamaOptions& options, int64_t memory_width) : head_dim_(options.head_dim) {
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
  return rotate(q_proj_(normalized).unflatten(-1, {-1, head_dim_}), rotary);
}

KeyValue LlamaLayer::key_value(const at::Tensor& normalized, const RotaryTable& rotary) {
  return {rotate(k_proj_(normalized).unflatten(-1, {-1, head_dim_}), rotary), v_proj_(normalized).unflatten(-1, {-1, head_dim_})};
}

KeyValue LlamaLayer::key_value_of(const KeyValue& memory) {
  const auto project = [&](torch::nn::Linear& linear, const at::Tensor& x) {
    return linear(x.to(linear->weight.scalar_type()).flatten(-2)).unflatten(-1, {-1, head_dim_});
  };
  return {project(k_proj_, memory.key), project(v_proj_, memory.value)};
}

LlamaLayer::Frozen LlamaLayer::frozen(at::ScalarType dtype) {
  return {.qkv = packed_qkv_.get({q_proj_->weight, k_proj_->weight, v_proj_->weight}, dtype),
          .out = packed_out_.get({o_proj_->weight}, dtype),
          .gate_up = packed_gate_up_.get({gate_proj_->weight, up_proj_->weight}, dtype),
          .down = packed_down_.get({down_proj_->weight}, dtype)};
}

LlamaLayer::Projected LlamaLayer::project(const Frozen& weights, const at::Tensor& x, const RotaryTable& rotary) {
  const int64_t heads = q_proj_->weight.size(0) / head_dim_, kv_heads = k_proj_->weight.size(0) / head_dim_;
  const at::Tensor all = at::linear(input_layernorm_->forward(x).to(x.scalar_type()), weights.qkv).unflatten(-1, {-1, head_dim_});
  const at::Tensor rotated = rotate(all.narrow(2, 0, heads + kv_heads), rotary);
  return {rotated.narrow(2, 0, heads), {rotated.narrow(2, heads, kv_heads), all.narrow(2, heads + kv_heads, kv_heads)}};
}

at::Tensor LlamaLayer::finish(const Frozen& weights, const at::Tensor& x, const at::Tensor& attention) {
  const at::Tensor rows = x.flatten(0, -2);
  const at::Tensor middle = at::addmm(rows, attention.flatten(0, -2), weights.out.t());
  const auto halves = at::linear(post_attention_layernorm_->forward(middle).to(x.scalar_type()), weights.gate_up).chunk(2, -1);
  return at::addmm(middle, at::silu(halves[0]) * halves[1], weights.down.t()).view_as(x);
}

at::Tensor LlamaLayer::finish(const at::Tensor& x, const at::Tensor& attention) {
  const at::ScalarType dtype = o_proj_->weight.scalar_type();
  const at::Tensor middle = (o_proj_(attention.to(dtype)) + x).to(dtype);
  const at::Tensor input = post_attention_layernorm_->forward(middle);
  return down_proj_(at::silu(gate_proj_(input)) * up_proj_(input)) + middle;
}

}  // namespace vla
