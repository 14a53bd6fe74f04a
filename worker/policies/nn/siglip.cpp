#include "worker/policies/nn/siglip.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/activation_checkpoint.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/llama.hpp"

namespace vla {
namespace {

torch::nn::LayerNorm siglip_norm(const SiglipOptions& options) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width}).eps(options.norm_eps));
}

}  // namespace

SiglipLayer::SiglipLayer(const SiglipOptions& options) : heads_(options.heads) {
  const auto attention = register_module("self_attn", std::make_shared<torch::nn::Module>());
  const auto square = [&](const char* name) { return attention->register_module(name, torch::nn::Linear(options.width, options.width)); };
  k_proj_ = square("k_proj");
  v_proj_ = square("v_proj");
  q_proj_ = square("q_proj");
  out_proj_ = square("out_proj");
  layer_norm1_ = register_module("layer_norm1", siglip_norm(options));
  const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
  fc1_ = mlp->register_module("fc1", torch::nn::Linear(options.width, options.mlp_width));
  fc2_ = mlp->register_module("fc2", torch::nn::Linear(options.mlp_width, options.width));
  layer_norm2_ = register_module("layer_norm2", siglip_norm(options));
}

at::Tensor SiglipLayer::forward_frozen(const at::Tensor& x) {
  const int64_t width = x.size(2);
  const at::ScalarType dtype = x.scalar_type();
  const auto normalize = [&](torch::nn::LayerNorm& norm, const at::Tensor& rows) {
    return std::get<0>(at::native_layer_norm(rows, {width}, norm->weight.to(dtype), norm->bias.to(dtype), norm->options.eps()));
  };
  const at::Tensor weight = packed_qkv_.get({q_proj_->weight, k_proj_->weight, v_proj_->weight}, dtype);
  const at::Tensor bias = packed_qkv_bias_.get({q_proj_->bias, k_proj_->bias, v_proj_->bias}, dtype);
  const auto heads = at::linear(normalize(layer_norm1_, x), weight, bias).view({x.size(0), x.size(1), 3, heads_, width / heads_}).unbind(2);
  const at::Tensor mixed = at::scaled_dot_product_attention(heads[0].transpose(1, 2), heads[1].transpose(1, 2), heads[2].transpose(1, 2));
  const auto project = [&](torch::nn::Linear& linear, const at::Tensor& rows) { return at::addmm(linear->bias.to(dtype), rows, linear->weight.to(dtype).t()); };
  const at::Tensor middle = project(out_proj_, mixed.transpose(1, 2).reshape({-1, width})).add_(x.view({-1, width}));
  const at::Tensor input = normalize(layer_norm2_, middle);
  // The product's own epilogue on a GPU; on the CPU that operation has the other GELU.
  const at::Tensor wide = x.is_cuda() ? at::_addmm_activation(fc1_->bias.to(dtype), input, fc1_->weight.to(dtype).t(), 1, 1, /*use_gelu=*/true)
                                      : at::gelu(project(fc1_, input), "tanh");
  return project(fc2_, wide).add_(middle).view_as(x);
}

at::Tensor SiglipLayer::forward(const at::Tensor& x) {
  const at::Tensor input = layer_norm1_(x);
  const auto heads = [&](torch::nn::Linear& linear) { return linear(input).unflatten(-1, {heads_, -1}).transpose(1, 2); };
  const at::Tensor mixed = at::scaled_dot_product_attention(heads(q_proj_), heads(k_proj_), heads(v_proj_));
  const at::Tensor middle = x + out_proj_(mixed.transpose(1, 2).flatten(-2));
  return middle + fc2_(at::gelu(fc1_(layer_norm2_(middle)), "tanh"));
}

SiglipTower::SiglipTower(const SiglipOptions& options) : side_(options.image_size / options.patch_size) {
  const auto embeddings = register_module("embeddings", std::make_shared<torch::nn::Module>());
  patch_embedding_ = embeddings->register_module(
      "patch_embedding", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, options.width, options.patch_size).stride(options.patch_size)));
  position_embedding_ = embeddings->register_module("position_embedding", torch::nn::Embedding(side_ * side_, options.width));
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(std::make_shared<SiglipLayer>(options));
    list->push_back(layers_.back());
  }
  register_module("encoder", std::make_shared<torch::nn::Module>())->register_module("layers", list);
  post_layernorm_ = register_module("post_layernorm", siglip_norm(options));
  init_as_transformers(*this);
}

const at::Tensor& SiglipTower::positions(int64_t rows, int64_t columns, const at::TensorOptions& options) {
  at::Tensor& table = positions_[{rows, columns}];
  if (table.defined()) {
    if (table.device() != options.device()) table = table.to(options.device());
    return table;
  }
  // Place i of n lies in the trained cell floor(i / n * side), with the reference's rounding: i / n in the images' dtype.
  const double cell = 1.0 / static_cast<double>(side_);
  const at::Tensor boundaries = at::arange(cell, 1.0, cell, at::kFloat);
  const auto cells = [&](int64_t n) {
    const float step = 1.0f / static_cast<float>(n);
    const at::Tensor places = (at::arange(n, at::kFloat) * step).clamp_max(1.0 - 1e-6).to(c10::typeMetaToScalarType(options.dtype()));
    return at::bucketize(places.to(at::kFloat), boundaries, /*out_int32=*/false, /*right=*/true);
  };
  table = (cells(rows).unsqueeze(1) * side_ + cells(columns)).flatten().to(options.device());
  return table;
}

at::Tensor SiglipTower::forward(const at::Tensor& images) {
  const at::Tensor patches = patch_embedding_(images.to(patch_embedding_->weight.scalar_type()));
  at::Tensor x = patches.flatten(2).transpose(1, 2) + position_embedding_(positions(patches.size(2), patches.size(3), patches.options()));
  if (fast_mode() && !x.requires_grad() && is_frozen(*this)) {
    x = x.to(compute_dtype(patch_embedding_->weight)).contiguous();
    for (const auto& layer : layers_) x = layer->forward_frozen(x);
    return post_layernorm_(x);
  }
  for (const auto& layer : layers_) {
    const auto segment = [layer](const std::vector<at::Tensor>& in) { return layer->forward(in[0]); };
    x = checkpoint_if(checkpoint_layers_, *layer, segment, {x});
  }
  return post_layernorm_(x);
}

}  // namespace vla
