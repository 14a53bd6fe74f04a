#include "worker/policies/nn/siglip.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/activation_checkpoint.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/fused_norm.hpp"
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

at::Tensor FrozenNorm::forward(torch::nn::LayerNorm& norm, const at::Tensor& x, const std::vector<at::Tensor>& biases) {
  const at::ScalarType dtype = x.scalar_type();
  at::Tensor offset;
  if (!biases.empty()) {
    const auto sum = [&](const at::Tensor& all) { return all.view({-1, x.size(-1)}).sum(0).to(dtype); };
    offset = offset_.get(biases, dtype == at::kDouble ? at::kDouble : at::kFloat, sum);
  }
  return offset_layer_norm(x, offset, weight_.get({norm->weight}, dtype), bias_.get({norm->bias}, dtype), norm->options.eps());
}

void SiglipLayer::forward_frozen(at::Tensor& x, std::vector<at::Tensor>& biases) {
  const int64_t width = x.size(2);
  const at::ScalarType dtype = x.scalar_type();
  at::Tensor stream = x.view({-1, width});
  const at::Tensor qkv = at::addmm(packed_qkv_bias_.get({q_proj_->bias, k_proj_->bias, v_proj_->bias}, dtype), frozen_norm1_.forward(layer_norm1_, stream, biases),
                                   packed_qkv_.get({q_proj_->weight, k_proj_->weight, v_proj_->weight}, dtype).t());
  const auto heads = qkv.view({x.size(0), x.size(1), 3, heads_, width / heads_}).unbind(2);
  const at::Tensor mixed = at::scaled_dot_product_attention(heads[0].transpose(1, 2), heads[1].transpose(1, 2), heads[2].transpose(1, 2));
  stream.addmm_(mixed.transpose(1, 2).reshape({-1, width}), packed_out_.get({out_proj_->weight}, dtype).t());
  biases.push_back(out_proj_->bias);
  const at::Tensor input = frozen_norm2_.forward(layer_norm2_, stream, biases);
  const at::Tensor fc1 = packed_fc1_.get({fc1_->weight}, dtype).t(), fc1_bias = packed_fc1_bias_.get({fc1_->bias}, dtype);
  // The product's own epilogue on a GPU; on the CPU that operation has the other GELU.
  const at::Tensor wide = x.is_cuda() ? at::_addmm_activation(fc1_bias, input, fc1, 1, 1, /*use_gelu=*/true) : at::gelu(at::addmm(fc1_bias, input, fc1), "tanh");
  stream.addmm_(wide, packed_fc2_.get({fc2_->weight}, dtype).t());
  biases.push_back(fc2_->bias);
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

at::Tensor SiglipTower::forward_frozen(const at::Tensor& images) {
  const torch::NoGradGuard no_grad;
  const at::ScalarType dtype = compute_dtype(patch_embedding_->weight);
  const int64_t size = patch_embedding_->weight.size(2), rows = images.size(2) / size, columns = images.size(3) / size;
  // A convolution whose windows do not overlap is a product.
  const at::Tensor patches = images.narrow(2, 0, rows * size)
                                 .narrow(3, 0, columns * size)
                                 .to(dtype)
                                 .unflatten(3, {columns, size})
                                 .unflatten(2, {rows, size})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({images.size(0) * rows * columns, -1});
  const at::Tensor weight = packed_patch_.get({patch_embedding_->weight}, dtype).flatten(1);
  at::Tensor x = at::addmm(packed_patch_bias_.get({patch_embedding_->bias}, dtype), patches, weight.t()).view({images.size(0), rows * columns, -1});
  x.add_(packed_positions_.get({position_embedding_->weight}, dtype).index_select(0, positions(rows, columns, x.options())));
  std::vector<at::Tensor> biases;
  for (const auto& layer : layers_) layer->forward_frozen(x, biases);
  return frozen_post_norm_.forward(post_layernorm_, x, biases);
}

at::Tensor SiglipTower::forward(const at::Tensor& images) {
  if (fast_mode() && !images.requires_grad() && is_frozen(*this)) return forward_frozen(images);
  const at::Tensor patches = patch_embedding_(images.to(patch_embedding_->weight.scalar_type()));
  at::Tensor x = patches.flatten(2).transpose(1, 2) + position_embedding_(positions(patches.size(2), patches.size(3), patches.options()));
  for (const auto& layer : layers_) {
    const auto segment = [layer](const std::vector<at::Tensor>& in) { return layer->forward(in[0]); };
    x = checkpoint_if(checkpoint_layers_, *layer, segment, {x});
  }
  return post_layernorm_(x);
}

}  // namespace vla
