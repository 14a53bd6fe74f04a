#include "worker/policies/smolvla/smolvla_model.hpp"

#include <cmath>
#include <numbers>

#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"

namespace vla {

SmolVlaModel::SmolVlaModel(const SmolVlaOptions& options, const SmolVlmConfig& config, const at::Tensor& frame) : options_(options), frame_(frame) {
  vlm_with_expert_ = register_module("vlm_with_expert", std::make_shared<VlmWithExpert>(options, config));
  const int64_t width = vlm_with_expert_->expert_width();
  state_proj_ = register_module("state_proj", torch::nn::Linear(options.max_state_dim, config.text.width));
  action_in_proj_ = register_module("action_in_proj", torch::nn::Linear(options.max_action_dim, width));
  action_out_proj_ = register_module("action_out_proj", torch::nn::Linear(width, options.max_action_dim));
  action_time_mlp_in_ = register_module("action_time_mlp_in", torch::nn::Linear(2 * width, width));
  action_time_mlp_out_ = register_module("action_time_mlp_out", torch::nn::Linear(width, width));
  for (auto& parameter : state_proj_->parameters()) parameter.set_requires_grad(options.train_state_proj);
  const at::Tensor fraction = at::linspace(0, 1, width / 2, at::kDouble);
  frequencies_ = 1.0 / (options.min_period * at::pow(options.max_period / options.min_period, fraction)) * (2 * std::numbers::pi);
}

at::Tensor SmolVlaModel::see(const SmolVlaObservation& observation) {
  const int64_t rows = observation.state.size(0);
  return vlm_with_expert_->see(observation.images).unflatten(0, {observation.images.size(0) / rows, rows}).transpose(0, 1);
}

at::Tensor SmolVlaModel::embed_cameras(const SmolVlaObservation& observation) {
  const int64_t rows = observation.state.size(0), cameras = observation.image_valid.size(1);
  at::Tensor images = vlm_with_expert_->connect(observation.vision.defined() ? observation.vision : see(observation));
  // The root is one of the embeddings' dtype here, but a number of full precision for the task: in bfloat16 that is 31 and 30.98.
  images = images * at::full({}, std::sqrt(static_cast<double>(images.size(3))), images.options().requires_grad(false));
  // Tokens of empty cameras are masked wherever they would be read.
  images = at::constant_pad_nd(images, {0, 0, 0, 0, 0, cameras - images.size(1)});
  if (!frame_.defined()) return images;
  if (frame_.device() != images.device()) frame_ = frame_.to(images.device());
  const at::Tensor frame = vlm_with_expert_->embed_tokens(frame_).expand({rows, cameras, 2, images.size(3)});
  return at::cat({frame, images, frame.slice(2, 0, 1)}, 2);
}

at::Tensor SmolVlaModel::embed_scene(const SmolVlaObservation& observation) {
  const at::Tensor images = embed_cameras(observation);
  return at::cat({images.flatten(1, 2), vlm_with_expert_->embed_tokens(observation.tokens) * std::sqrt(static_cast<double>(images.size(3)))}, 1);
}

at::Tensor SmolVlaModel::valid_tokens(const SmolVlaObservation& observation, int64_t scene) {
  const int64_t rows = observation.state.size(0), cameras = observation.image_valid.size(1);
  const int64_t of_camera = (scene - observation.tokens.size(1)) / cameras;
  const auto bools = observation.token_valid.options();
  at::Tensor image_valid = observation.image_valid.unsqueeze(2).expand({-1, -1, of_camera});
  if (frame_.defined()) {  // the frames of masked images count
    const at::Tensor frame = at::ones({rows, cameras, 2}, bools);
    image_valid = at::cat({frame, image_valid.slice(2, 3), frame.slice(2, 0, 1)}, 2);
  }
  const int64_t padding = std::max<int64_t>(0, options_.prefix_length - scene - 1);
  return at::cat({image_valid.flatten(1), observation.token_valid, at::ones({rows, 1}, bools), at::zeros({rows, padding}, bools)}, 1);
}

SmolVlaPrefix SmolVlaModel::embed_prefix(const SmolVlaObservation& observation) {
  const at::Tensor scene = observation.scene.defined() ? observation.scene : embed_scene(observation);
  const at::Tensor state = state_proj_(observation.state.to(state_proj_->weight.scalar_type())).unsqueeze(1);
  return {scene, state, valid_tokens(observation, scene.size(scene.dim() == 3 ? 1 : 3))};
}

at::Tensor SmolVlaModel::encode_scene(const SmolVlaObservation& observation) {
  const at::Tensor scene = embed_scene(observation), valid = valid_tokens(observation, scene.size(1)).slice(1, 0, scene.size(1));
  std::vector<at::Tensor> layers;
  for (const KeyValue& layer : vlm_with_expert_->encode_frozen(scene, {}, valid.cumsum(1) - 1, valid)) layers.push_back(at::stack({layer.key, layer.value}, 1));
  return at::stack(layers, 1);
}

SmolVlaMemory SmolVlaModel::encode(const SmolVlaPrefix& prefix) {
  const bool is_encoded = prefix.scene.dim() == 6;
  const int64_t scene = prefix.scene.size(is_encoded ? 3 : 1);
  if (!is_encoded && (!fast_mode() || prefix.valid.size(1) != scene + 1 || !vlm_with_expert_->has_frozen_text())) return encode_whole(prefix);
  // No token of the scene sees the state: where the SmolVLM does not learn, gradients go through the state's token alone.
  const at::Tensor positions = prefix.valid.cumsum(1) - 1;
  std::vector<KeyValue> memory;
  if (is_encoded) {
    for (const at::Tensor& layer : prefix.scene.unbind(1)) memory.push_back({layer.select(1, 0), layer.select(1, 1)});
  } else {
    memory = vlm_with_expert_->encode_frozen(prefix.scene, {}, positions.slice(1, 0, scene), prefix.valid.slice(1, 0, scene));
  }
  return {vlm_with_expert_->encode_frozen(prefix.state, memory, positions.slice(1, scene), prefix.valid), prefix.valid};
}

SmolVlaMemory SmolVlaModel::encode_whole(const SmolVlaPrefix& prefix) {
  const int64_t scene = prefix.scene.size(1), length = prefix.valid.size(1);
  const at::Tensor embeddings = at::constant_pad_nd(at::cat({prefix.scene, prefix.state}, 1), {0, 0, 0, length - scene - 1});
  const at::Tensor block = (at::arange(length, prefix.valid.options().dtype(at::kLong)) >= scene).to(at::kLong);
  const at::Tensor sees = (block.unsqueeze(0) <= block.unsqueeze(1)).unsqueeze(0);  // [1, P, P]: those of one's own block and of earlier ones
  const at::Tensor visible = sees & prefix.valid.unsqueeze(1) & prefix.valid.unsqueeze(2);
  return {vlm_with_expert_->encode(embeddings, prefix.valid.cumsum(1) - 1, visible), prefix.valid};
}

at::Tensor SmolVlaModel::embed_suffix(const at::Tensor& actions, const at::Tensor& time) {
  const at::Tensor embedded = action_in_proj_(actions.to(dtype()));
  if (frequencies_.device() != actions.device()) frequencies_ = frequencies_.to(actions.device());
  const at::Tensor angles = frequencies_.unsqueeze(0) * time.unsqueeze(1);  // float64 whatever the time is
  const at::Tensor encoded = at::cat({angles.sin(), angles.cos()}, 1).to(embedded.scalar_type()).unsqueeze(1).expand_as(embedded);
  return action_time_mlp_out_(at::silu(action_time_mlp_in_(at::cat({embedded, encoded}, 2))));
}

at::Tensor SmolVlaModel::velocity(const SmolVlaMemory& memory, const at::Tensor& actions, const at::Tensor& time) {
  const int64_t rows = actions.size(0), length = actions.size(1), prefix_length = memory.valid.size(1);
  const at::Tensor steps = at::arange(length, memory.valid.options().dtype(at::kLong));
  const at::Tensor causal = (steps.unsqueeze(0) <= steps.unsqueeze(1)).unsqueeze(0);  // actions see those before them
  const at::Tensor mask = at::cat({memory.valid.unsqueeze(1).expand({rows, length, prefix_length}), causal.expand({rows, length, length})}, 2);
  const at::Tensor positions = memory.valid.sum(1, /*keepdim=*/true) + steps;
  const at::Tensor out = vlm_with_expert_->decode(embed_suffix(actions, time), memory.layers, positions, mask);
  return action_out_proj_(out.to(dtype()));
}

at::Tensor SmolVlaModel::sample(const SmolVlaObservation& observation, const at::Tensor& noise) {
  const auto encode_observation = [&] { return encode(embed_prefix(observation)); };
  SmolVlaMemory memory = encode_observation();
  const double step_size = -1.0 / static_cast<double>(options_.num_steps);
  at::Tensor actions = noise;
  for (int64_t step = 0; step < options_.num_steps; ++step) {
    if (step > 0 && !options_.use_cache) memory = encode_observation();
    const at::Tensor time = at::full({1}, 1.0 + static_cast<double>(step) * step_size, noise.options().dtype(at::kFloat));
    actions = actions + velocity(memory, actions, time) * step_size;
  }
  return actions;
}

}  // namespace vla
