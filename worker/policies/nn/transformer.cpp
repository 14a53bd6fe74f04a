#include "worker/policies/nn/transformer.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/activation_checkpoint.hpp"
#include "worker/policies/nn/fast_linear.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/transformer_dropout.hpp"

namespace vla {
namespace {

at::Tensor drop(const StepRandom* random, const at::Tensor& x, double p, uint32_t stream, int64_t batch_dim = 1) {
  return random != nullptr ? random->dropout(x, p, stream, batch_dim) : x;
}

at::Tensor feed_forward(const TransformerOptions& options, torch::nn::Linear& linear1, torch::nn::Linear& linear2, const at::Tensor& x,
                        uint32_t stream, const StepRandom* random) {
  if (!options.gelu && fast_mode() && options.feedforward_dim % 4 == 0) {
    const at::Tensor hidden = fast_linear(x, linear1->weight, linear1->bias);
    return fast_linear(relu_dropout(hidden, random, options.dropout, stream), linear2->weight, linear2->bias);
  }
  const at::Tensor hidden = options.gelu ? at::gelu(linear1(x)) : at::relu(linear1(x));
  return linear2(drop(random, hidden, options.dropout, stream));
}

// The end of a block: its output, dropped out, is added to x, and a norm that stands after blocks follows.
at::Tensor add_block(const TransformerOptions& options, const at::Tensor& x, const at::Tensor& block, const torch::nn::LayerNorm& norm,
                     const StepRandom* random, uint32_t stream) {
  if (!options.pre_norm && fast_mode() && options.dim % 4 == 0) return add_dropout_norm(x, block, *norm, random, options.dropout, stream);
  const at::Tensor sum = x + drop(random, block, options.dropout, stream);
  return options.pre_norm ? sum : norm.ptr()->forward(sum);
}

// A recomputation in backward outlives the forward's arguments.
std::optional<StepRandom> by_value(const StepRandom* random) { return random != nullptr ? std::optional(*random) : std::nullopt; }

torch::nn::LayerNorm layer_norm(int64_t dim) { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim})); }

void tell_attention(const torch::nn::Module& module, bool is_recomputed) {
  for (const auto& child : module.modules()) {
    if (auto* attention = child->as<MultiheadAttention>()) attention->is_recomputed(is_recomputed);
  }
}

template <class Layer>
std::vector<std::shared_ptr<Layer>> make_layers(torch::nn::Module& owner, const TransformerOptions& options, int64_t count,
                                                const std::string& path) {
  torch::nn::ModuleList list;
  std::vector<std::shared_ptr<Layer>> layers;
  for (int64_t i = 0; i < count; ++i) {
    layers.push_back(std::make_shared<Layer>(options, path + ".layers." + std::to_string(i)));
    list->push_back(layers.back());
  }
  owner.register_module("layers", list);
  return layers;
}

}  // namespace

MultiheadAttention::MultiheadAttention(const TransformerOptions& options, const std::string& path)
    : heads_(options.heads), dropout_(options.dropout), stream_(random_stream(path + ".weights")) {
  in_proj_weight_ = register_parameter("in_proj_weight", torch::empty({3 * options.dim, options.dim}));
  in_proj_bias_ = register_parameter("in_proj_bias", torch::zeros({3 * options.dim}));
  out_proj_ = register_module("out_proj", torch::nn::Linear(options.dim, options.dim));
  torch::nn::init::xavier_uniform_(in_proj_weight_);
  torch::nn::init::zeros_(out_proj_->bias);
}

at::Tensor MultiheadAttention::forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                       const at::Tensor& key_is_pad, const StepRandom* random) {
  const int64_t length = query.size(0), rows = query.size(1), dim = query.size(2), head_dim = dim / heads_;
  at::Tensor q, k, v;
  if (query.is_same(key)) {  // one product for both
    const auto weight = in_proj_weight_.split({2 * dim, dim});
    const auto bias = in_proj_bias_.split({2 * dim, dim});
    const auto both = fast_linear(query, weight[0], bias[0]).chunk(2, -1);
    q = both[0];
    k = both[1];
    v = fast_linear(value, weight[1], bias[1]);
  } else {
    const auto weight = in_proj_weight_.chunk(3);
    const auto bias = in_proj_bias_.chunk(3);
    q = fast_linear(query, weight[0], bias[0]);
    k = fast_linear(key, weight[1], bias[1]);
    v = fast_linear(value, weight[2], bias[2]);
  }
  if (fast_mode() && (random == nullptr || dropout_ == 0 || (query.is_cuda() && !is_recomputed_))) {
    // [S, B, D] -> [B, H, S, D/H], without a copy
    const auto heads = [&](const at::Tensor& x) { return x.unflatten(2, {heads_, head_dim}).permute({1, 2, 0, 3}); };
    at::Tensor mask;
    if (key_is_pad.defined()) {
      mask = at::zeros({rows, 1, 1, key.size(0)}, q.options())
                 .masked_fill_(key_is_pad.view({rows, 1, 1, -1}), -std::numeric_limits<double>::infinity())
                 .expand({rows, heads_, length, -1});
    }
    const at::Tensor mixed = at::scaled_dot_product_attention(heads(q), heads(k), heads(v),
                                                              mask.defined() ? std::optional(mask) : std::nullopt, random != nullptr ? dropout_ : 0);
    return fast_linear(mixed.permute({2, 0, 1, 3}).reshape({length, rows, dim}), out_proj_->weight, out_proj_->bias);
  }
  // [S, B, D] -> [B*H, S, D/H]
  const auto fold = [&](const at::Tensor& x) { return x.reshape({-1, rows * heads_, head_dim}).transpose(0, 1); };
  at::Tensor scores = at::bmm(fold(q * std::sqrt(1.0 / static_cast<double>(head_dim))), fold(k).transpose(1, 2));
  scores = scores.view({rows, heads_, length, -1});
  if (key_is_pad.defined()) {
    scores = scores.masked_fill(key_is_pad.view({rows, 1, 1, -1}), -std::numeric_limits<double>::infinity());
  }
  const at::Tensor weights = drop(random, scores.softmax(-1), dropout_, stream_, 0);
  const at::Tensor mixed = at::bmm(weights.view({rows * heads_, length, -1}), fold(v));
  return out_proj_(mixed.transpose(0, 1).reshape({length, rows, dim}));
}

EncoderLayer::EncoderLayer(const TransformerOptions& options, const std::string& path)
    : options_(options),
      stream_hidden_(random_stream(path + ".dropout")),
      stream1_(random_stream(path + ".dropout1")),
      stream2_(random_stream(path + ".dropout2")) {
  self_attn_ = register_module("self_attn", std::make_shared<MultiheadAttention>(options, path + ".self_attn"));
  linear1_ = register_module("linear1", torch::nn::Linear(options.dim, options.feedforward_dim));
  linear2_ = register_module("linear2", torch::nn::Linear(options.feedforward_dim, options.dim));
  norm1_ = register_module("norm1", layer_norm(options.dim));
  norm2_ = register_module("norm2", layer_norm(options.dim));
}

at::Tensor EncoderLayer::forward(at::Tensor x, const at::Tensor& position, const at::Tensor& key_is_pad, const StepRandom* random) {
  const at::Tensor input = options_.pre_norm ? norm1_(x) : x;
  const at::Tensor query = input + position;
  x = add_block(options_, x, self_attn_->forward(query, query, input, key_is_pad, random), norm1_, random, stream1_);
  const at::Tensor middle = options_.pre_norm ? norm2_(x) : x;
  return add_block(options_, x, feed_forward(options_, linear1_, linear2_, middle, stream_hidden_, random), norm2_, random, stream2_);
}

DecoderLayer::DecoderLayer(const TransformerOptions& options, const std::string& path)
    : options_(options),
      stream_hidden_(random_stream(path + ".dropout")),
      stream1_(random_stream(path + ".dropout1")),
      stream2_(random_stream(path + ".dropout2")),
      stream3_(random_stream(path + ".dropout3")) {
  self_attn_ = register_module("self_attn", std::make_shared<MultiheadAttention>(options, path + ".self_attn"));
  multihead_attn_ = register_module("multihead_attn", std::make_shared<MultiheadAttention>(options, path + ".multihead_attn"));
  linear1_ = register_module("linear1", torch::nn::Linear(options.dim, options.feedforward_dim));
  linear2_ = register_module("linear2", torch::nn::Linear(options.feedforward_dim, options.dim));
  norm1_ = register_module("norm1", layer_norm(options.dim));
  norm2_ = register_module("norm2", layer_norm(options.dim));
  norm3_ = register_module("norm3", layer_norm(options.dim));
}

at::Tensor DecoderLayer::forward(at::Tensor x, const at::Tensor& memory, const at::Tensor& position, const at::Tensor& memory_position,
                                 const StepRandom* random) {
  const at::Tensor input = options_.pre_norm ? norm1_(x) : x;
  const at::Tensor query = input + position;
  x = add_block(options_, x, self_attn_->forward(query, query, input, {}, random), norm1_, random, stream1_);
  const at::Tensor cross = (options_.pre_norm ? norm2_(x) : x) + position;
  x = add_block(options_, x, multihead_attn_->forward(cross, memory + memory_position, memory, {}, random), norm2_, random, stream2_);
  const at::Tensor middle = options_.pre_norm ? norm3_(x) : x;
  return add_block(options_, x, feed_forward(options_, linear1_, linear2_, middle, stream_hidden_, random), norm3_, random, stream3_);
}

TransformerEncoder::TransformerEncoder(const TransformerOptions& options, int64_t layers, const std::string& path)
    : layers_(make_layers<EncoderLayer>(*this, options, layers, path)) {
  if (options.pre_norm) norm_ = register_module("norm", layer_norm(options.dim));
}

at::Tensor TransformerEncoder::forward(at::Tensor x, const at::Tensor& position, const at::Tensor& key_is_pad, const StepRandom* random) {
  for (const auto& layer : layers_) {
    const auto segment = [layer, key_is_pad, random = by_value(random)](const std::vector<at::Tensor>& in) {
      return layer->forward(in[0], in[1], key_is_pad, random ? &*random : nullptr);
    };
    x = checkpoint_if(checkpoint_layers_, *layer, segment, {x, position});
  }
  return norm_ ? norm_(x) : x;
}

TransformerDecoder::TransformerDecoder(const TransformerOptions& options, int64_t layers, const std::string& path)
    : layers_(make_layers<DecoderLayer>(*this, options, layers, path)) {
  norm_ = register_module("norm", layer_norm(options.dim));
}

at::Tensor TransformerDecoder::forward(at::Tensor x, const at::Tensor& memory, const at::Tensor& position,
                                       const at::Tensor& memory_position, const StepRandom* random) {
  for (const auto& layer : layers_) {
    const auto segment = [layer, random = by_value(random)](const std::vector<at::Tensor>& in) {
      return layer->forward(in[0], in[1], in[2], in[3], random ? &*random : nullptr);
    };
    x = checkpoint_if(checkpoint_layers_, *layer, segment, {x, memory, position, memory_position});
  }
  return norm_(x);
}

void TransformerEncoder::checkpoint_layers(bool on) {
  checkpoint_layers_ = on;
  tell_attention(*this, on);
}

void TransformerDecoder::checkpoint_layers(bool on) {
  checkpoint_layers_ = on;
  tell_attention(*this, on);
}

void xavier_init(torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) {
    if (parameter.dim() > 1) torch::nn::init::xavier_uniform_(parameter);
  }
}

}  // namespace vla
