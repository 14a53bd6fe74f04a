#include "worker/policies/smolvla/vlm_with_expert.hpp"

#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/checkpoint/weights_file.hpp"
#include "worker/policies/nn/activation_checkpoint.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/fused_norm.hpp"

namespace vla {
namespace {

constexpr double kRotaryBase = 10000;  // LeRobot's, whatever the rope_theta of the SmolVLM

std::vector<std::shared_ptr<LlamaLayer>> add_layers(torch::nn::Module& owner, int64_t count, const std::function<std::shared_ptr<LlamaLayer>(int64_t)>& make) {
  torch::nn::ModuleList list;
  std::vector<std::shared_ptr<LlamaLayer>> layers;
  for (int64_t i = 0; i < count; ++i) {
    layers.push_back(make(i));
    list->push_back(layers.back());
  }
  owner.register_module("layers", list);
  return layers;
}

// LeRobot's rule: two thirds of four times the width, rounded up to a multiple of 256.
int64_t expert_mlp_width(int64_t width) {
  const int64_t hidden = 4 * static_cast<int64_t>(2.0 * static_cast<double>(width) / 3);
  return (hidden + 255) / 256 * 256;
}

// [N, side², width] -> [N, (side / factor)², width * factor²]: a block's patches, row by row, become one token.
at::Tensor join_blocks(const at::Tensor& x, int64_t factor) {
  const int64_t side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(x.size(1))))), blocks = side / factor;
  return x.view({x.size(0), blocks, factor, blocks, factor, x.size(2)}).permute({0, 1, 3, 2, 4, 5}).reshape({x.size(0), blocks * blocks, -1});
}

void set_trainable(torch::nn::Module& module, bool on) {
  for (auto& parameter : module.parameters()) parameter.set_requires_grad(on);
}

}  // namespace

VlmWithExpert::VlmWithExpert(const SmolVlaOptions& options, const SmolVlmConfig& config) : options_(options), config_(config), expert_(config.text) {
  const int64_t wanted = options.num_vlm_layers, layers = wanted > 0 ? std::min(wanted, config.text_layers) : config.text_layers;
  const int64_t expert_layers = options.num_expert_layers > 0 ? options.num_expert_layers : layers, every = layers / expert_layers;
  if (every == 0 || layers % expert_layers != 0) {
    throw cxxrun::UsageError("policy.num_expert_layers = {} does not divide the {} layers of the vision-language model", expert_layers, layers);
  }
  expert_.width = static_cast<int64_t>(static_cast<double>(config.text.width) * options.expert_width_multiplier);
  expert_.mlp_width = expert_mlp_width(expert_.width);
  if (expert_.width < 2 || expert_.width % 2 != 0) {
    throw cxxrun::UsageError("policy.expert_width_multiplier = {} makes the action expert {} wide, which is not an even number",
                             options.expert_width_multiplier, expert_.width);
  }
  for (int64_t i = 0; i < expert_layers; ++i) {
    // LeRobot shapes a layer's keys by its number in the expert and uses them by that of its neighbour.
    if (is_joint(i) != is_joint(i * every)) {
      throw cxxrun::UsageError("policy.num_expert_layers = {} and self_attn_every_n_layers = {} disagree about whether layer {} of the action expert "
                               "is a cross-attention: choose a number so that {} / num_expert_layers and self_attn_every_n_layers have no common factor",
                               expert_layers, options.self_attn_every_n_layers, i, layers);
    }
  }

  vlm_ = register_module("vlm", std::make_shared<torch::nn::Module>());
  const auto model = vlm_->register_module("model", std::make_shared<torch::nn::Module>());
  vision_model_ = model->register_module("vision_model", std::make_shared<SiglipTower>(config.vision));
  const int64_t shuffled = config.vision.width * config.scale_factor * config.scale_factor;
  connector_ = model->register_module("connector", std::make_shared<torch::nn::Module>())
                   ->register_module("modality_projection", std::make_shared<torch::nn::Module>())
                   ->register_module("proj", linear_without_bias(shuffled, config.text.width));
  text_model_ = model->register_module("text_model", std::make_shared<torch::nn::Module>());
  embed_tokens_ = text_model_->register_module("embed_tokens", torch::nn::Embedding(config.vocab_size, config.text.width));
  vlm_layers_ = add_layers(*text_model_, layers, [&](int64_t) { return std::make_shared<LlamaLayer>(config.text); });
  text_model_->register_module("norm", std::make_shared<RmsNorm>(config.text.width, config.text.norm_eps));
  lm_head_ = vlm_->register_module("lm_head", linear_without_bias(config.text.width, config.vocab_size));
  for (torch::nn::Module* part : std::initializer_list<torch::nn::Module*>{connector_.get(), embed_tokens_.get(), lm_head_.get()}) init_as_transformers(*part);

  lm_expert_ = register_module("lm_expert", std::make_shared<torch::nn::Module>());
  expert_layers_ = add_layers(*lm_expert_, expert_layers, [&](int64_t i) {
    return std::make_shared<LlamaLayer>(expert_, is_joint(i) ? 0 : config.text.kv_width());
  });
  expert_norm_ = lm_expert_->register_module("norm", std::make_shared<RmsNorm>(expert_.width, expert_.norm_eps));
  expert_at_.resize(vlm_layers_.size());
  for (int64_t i = 0; i < expert_layers; ++i) expert_at_[i * every] = expert_layers_[i];
  freeze();
}

bool VlmWithExpert::is_joint(int64_t layer) const {
  return options_.attention_mode == "self_attn" || (options_.self_attn_every_n_layers > 0 && layer % options_.self_attn_every_n_layers == 0);
}

void VlmWithExpert::freeze() {
  if (options_.freeze_vision_encoder) set_trainable(*vision_model_, false);
  if (options_.train_expert_only) {
    set_trainable(*vlm_, false);
    return;
  }
  // What the actions do not depend on, or, as LeRobot freezes it, only by keys and values.
  set_trainable(*lm_head_, false);
  set_trainable(*text_model_->named_children()["norm"], false);
  set_trainable(*vlm_layers_.back(), false);
  if (expert_layers_.size() != vlm_layers_.size() && vlm_layers_.size() > 1) set_trainable(*vlm_layers_[vlm_layers_.size() - 2], false);
}

void VlmWithExpert::load_vlm(const std::string& folder) {
  TensorMap own;
  for (const auto& entry : vlm_->named_parameters()) own[entry.key()] = entry.value();
  TensorMap stored = with_fitting_prefix(read_weights(folder), own, folder);
  constexpr std::string_view kLayers = "model.text_model.layers.";
  std::erase_if(stored, [&](const auto& entry) {
    if (!entry.first.starts_with(kLayers)) return false;
    const std::string number = entry.first.substr(kLayers.size(), entry.first.find('.', kLayers.size()) - kLayers.size());
    const bool is_number = !number.empty() && number.size() < 5 && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
    return is_number && std::stoull(number) >= vlm_layers_.size();
  });
  copy_by_name(stored, own, folder + " does not fit the SmolVLM of its config.json");
}

void VlmWithExpert::train(bool on) {
  Module::train(on);
  if (options_.freeze_vision_encoder) vision_model_->eval();
  if (options_.train_expert_only) vlm_->eval();
}

void VlmWithExpert::set_activation_checkpointing(bool on) {
  checkpoint_layers_ = on;
  vision_model_->checkpoint_layers(on);
}

std::vector<at::Tensor> VlmWithExpert::bfloat16_parameters() {
  if (options_.vlm_dtype == "float32") return {};
  const bool whole = options_.vlm_dtype == "bfloat16" || options_.load_vlm_weights;
  const bool text = whole || config_.text_dtype == at::kBFloat16;
  std::vector<at::Tensor> found;
  const auto add = [&](const torch::nn::Module& module) { std::ranges::copy(module.parameters(), std::back_inserter(found)); };
  if (whole || config_.vision_dtype == at::kBFloat16) add(*vision_model_);
  if (whole) {
    add(*connector_);
    add(*lm_head_);
  }
  if (!text) return found;
  add(*text_model_);
  add(*expert_norm_);
  for (size_t i = 0; i < expert_layers_.size(); ++i) {
    for (const auto& entry : expert_layers_[i]->named_parameters()) {
      // LeRobot puts these in place of others after the expert got its dtype.
      const bool is_replaced = !is_joint(static_cast<int64_t>(i)) && (entry.key() == "self_attn.k_proj.weight" || entry.key() == "self_attn.v_proj.weight");
      if (!is_replaced) found.push_back(entry.value());
    }
  }
  return found;
}

at::Tensor VlmWithExpert::see(const at::Tensor& images) {
  const at::Tensor seen = join_blocks(vision_model_->forward(images), config_.scale_factor);
  return is_frozen(*connector_) ? connector_(seen.to(connector_->weight.scalar_type())) : seen;
}

at::Tensor VlmWithExpert::connect(const at::Tensor& seen) {
  return is_frozen(*connector_) ? seen : connector_(seen.to(connector_->weight.scalar_type()));
}

at::Tensor VlmWithExpert::embed_tokens(const at::Tensor& tokens) { return embed_tokens_(tokens); }

bool VlmWithExpert::has_frozen_text() const {
  return is_frozen(*vlm_);
}

std::vector<KeyValue> VlmWithExpert::encode_frozen(const at::Tensor& x, const std::vector<KeyValue>& before, const at::Tensor& positions, const at::Tensor& visible) {
  const RotaryTable rotary = rotary_table(positions, config_.text.head_dim, kRotaryBase);
  const AttentionMask mask(visible.unsqueeze(1));
  const at::ScalarType dtype = vlm_layers_.front()->compute_dtype();
  LayerStream stream{x.to(dtype), {}};
  std::vector<KeyValue> memory;
  for (size_t i = 0; i < vlm_layers_.size(); ++i) {
    LlamaLayer& layer = *vlm_layers_[i];
    const LlamaLayer::Weights weights = layer.weights();
    const LlamaLayer::Projected own = layer.project(weights, layer.enter(weights, stream), rotary);
    memory.push_back(before.empty() ? own.memory : KeyValue{at::cat({before[i].key, own.memory.key}, 1), at::cat({before[i].value, own.memory.value}, 1)});
    if (i + 1 < vlm_layers_.size()) layer.leave(weights, stream, grouped_attention(own.query, memory.back(), mask));
  }
  return memory;
}

std::vector<KeyValue> VlmWithExpert::encode(at::Tensor x, const at::Tensor& positions, const at::Tensor& visible) {
  const AttentionMask mask(visible);
  const RotaryTable rotary = rotary_table(positions, config_.text.head_dim, kRotaryBase);
  std::vector<KeyValue> memory;
  for (const auto& layer : vlm_layers_) {
    const at::Tensor normalized = layer->normalize(x);
    memory.push_back(layer->key_value(normalized, rotary));
    if (layer == vlm_layers_.back()) break;
    const auto segment = [layer, rotary, mask](const std::vector<at::Tensor>& in) {
      return layer->finish(in[0], grouped_attention(layer->query(in[1], rotary), {in[2], in[3]}, mask));
    };
    x = checkpoint_if(checkpoint_layers_, *layer, segment, {x, normalized, memory.back().key, memory.back().value});
  }
  return memory;
}

at::Tensor VlmWithExpert::decode(at::Tensor x, const std::vector<KeyValue>& prefix, const at::Tensor& positions, const at::Tensor& visible) {
  const int64_t prefix_length = prefix.front().key.size(1);
  const RotaryTable behind_prefix = rotary_table(positions, expert_.head_dim, kRotaryBase);
  // Keys keep the positions they have in the prefix; queries of a cross-attention count from zero.
  const RotaryTable from_zero = rotary_table(at::arange(x.size(1), positions.options()).unsqueeze(0), expert_.head_dim, kRotaryBase);
  // Every action sees the whole prefix.
  const AttentionMask mask(visible), prefix_mask(visible.slice(1, 0, 1).slice(2, 0, prefix_length));
  if (fast_mode() && !checkpoint_layers_) {
    LayerStream stream{x.to(expert_norm_->weight().scalar_type()), {}};
    for (size_t i = 0; i < prefix.size(); ++i) {
      if (!expert_at_[i]) continue;
      LlamaLayer& layer = *expert_at_[i];
      const LlamaLayer::Weights weights = layer.weights();
      const at::Tensor normalized = layer.enter(weights, stream);
      if (is_joint(static_cast<int64_t>(i))) {
        const LlamaLayer::Projected own = layer.project(weights, normalized, behind_prefix);
        const KeyValue all{at::cat({prefix[i].key, own.memory.key}, 1), at::cat({prefix[i].value, own.memory.value}, 1)};
        layer.leave(weights, stream, grouped_attention(own.query, all, mask));
      } else {
        layer.leave(weights, stream, grouped_attention(layer.query(normalized, from_zero), layer.key_value_of(prefix[i]), prefix_mask));
      }
    }
    return add_rms_norm(stream.x, stream.added, expert_norm_->weight(), expert_norm_->eps()).normalized;
  }
  for (size_t i = 0; i < prefix.size(); ++i) {
    const auto layer = expert_at_[i];
    if (!layer) continue;
    Segment segment;
    if (is_joint(static_cast<int64_t>(i))) {
      segment = [layer, behind_prefix, mask](const std::vector<at::Tensor>& in) {
        const at::Tensor normalized = layer->normalize(in[0]);
        const KeyValue own = layer->key_value(normalized, behind_prefix);
        const KeyValue all{at::cat({in[1], own.key}, 1), at::cat({in[2], own.value}, 1)};
        return layer->finish(in[0], grouped_attention(layer->query(normalized, behind_prefix), all, mask));
      };
    } else {
      segment = [layer, from_zero, prefix_mask](const std::vector<at::Tensor>& in) {
        const at::Tensor query = layer->query(layer->normalize(in[0]), from_zero);
        return layer->finish(in[0], grouped_attention(query, layer->key_value_of({in[1], in[2]}), prefix_mask));
      };
    }
    x = checkpoint_if(checkpoint_layers_, *layer, segment, {x, prefix[i].key, prefix[i].value});
  }
  return expert_norm_->forward(x);
}

}  // namespace vla
