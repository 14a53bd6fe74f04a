// SmolVLA's network: observations to a prefix of tokens, noisy actions and the flow's time to a suffix, and the velocity that the action
// expert predicts (LeRobot 0.6.1, modeling_smolvla.py, under its parameter names). No loss; all random numbers are given. Waits for
// nothing on the device, shapes depend on the options and the batch alone.
#pragma once

#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "worker/policies/smolvla/vlm_with_expert.hpp"

namespace vla {

struct SmolVlaObservation {
  at::Tensor images;  // float [C * B, 3, H, W] in [-1, 1], camera by camera; not needed with either of the following two
  at::Tensor vision;  // what SmolVlaModel::see() made of them, or undefined
  at::Tensor scene;  // what SmolVlaModel::encode_scene() made of the observation, or undefined
  at::Tensor image_valid;  // bool [B, C + empty cameras]; those without images stand last
  at::Tensor tokens;  // int64 [B, L]
  at::Tensor token_valid;  // bool [B, L]
  at::Tensor state;  // float [B, max_state_dim]
};

// P tokens: images and task, which see each other; the state, which sees them too; padding.
struct SmolVlaPrefix {
  at::Tensor scene;  // [B, images and task, width], or what encode_scene() made of it
  at::Tensor state;  // [B, 1, width]
  at::Tensor valid;  // bool [B, P]
};

// A prefix as the action expert sees it.
struct SmolVlaMemory {
  std::vector<KeyValue> layers;
  at::Tensor valid;  // bool [B, P]
};

class SmolVlaModel : public torch::nn::Module {
 public:
  // `frame`: int64 [2], image_frame_tokens(), or undefined without add_image_special_tokens.
  SmolVlaModel(const SmolVlaOptions& options, const SmolVlmConfig& config, const at::Tensor& frame = {});

  at::Tensor see(const SmolVlaObservation& observation);  // [B, C, tokens, any]: what the vision tower, and a frozen connector, see
  // [B, layers, 2, images and task, kv_heads, head_dim]: keys and values, in a SmolVLM that does not learn
  at::Tensor encode_scene(const SmolVlaObservation& observation);
  SmolVlaPrefix embed_prefix(const SmolVlaObservation& observation);
  SmolVlaMemory encode(const SmolVlaPrefix& prefix);
  at::Tensor embed_suffix(const at::Tensor& actions, const at::Tensor& time);  // [B, chunk, max_action_dim], [B] or [1] -> [B, chunk, expert_width]
  // d actions / d time at `time`, 1 being noise: [B, chunk, max_action_dim]
  at::Tensor velocity(const SmolVlaMemory& memory, const at::Tensor& actions, const at::Tensor& time);
  // Integrates the flow from `noise` [B, chunk, max_action_dim] to actions.
  at::Tensor sample(const SmolVlaObservation& observation, const at::Tensor& noise);

  VlmWithExpert& transformers() { return *vlm_with_expert_; }
  at::ScalarType dtype() const { return action_in_proj_->weight.scalar_type(); }  // of states, actions and velocities

 private:
  SmolVlaMemory encode_whole(const SmolVlaPrefix& prefix);
  at::Tensor embed_cameras(const SmolVlaObservation& observation);  // [B, C, tokens, width]
  at::Tensor embed_scene(const SmolVlaObservation& observation);  // [B, images and task, width]
  at::Tensor valid_tokens(const SmolVlaObservation& observation, int64_t scene);  // bool [B, P]

  SmolVlaOptions options_;
  at::Tensor frame_;  // on the device of its last use, as the next
  at::Tensor frequencies_;  // float64 [expert_width / 2]
  std::shared_ptr<VlmWithExpert> vlm_with_expert_;
  torch::nn::Linear state_proj_{nullptr}, action_in_proj_{nullptr}, action_out_proj_{nullptr}, action_time_mlp_in_{nullptr}, action_time_mlp_out_{nullptr};
};

}  // namespace vla
