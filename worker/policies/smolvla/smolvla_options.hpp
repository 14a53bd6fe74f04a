// Options of SmolVLA (Shukor et al., "SmolVLA: a vision-language-action model for affordable and efficient robotics", 2025) under the
// names, and with the defaults, of LeRobot 0.6.1's SmolVLAConfig. `loss_version` and `vlm_dtype` are ours.
#pragma once

#include <string>
#include <vector>

#include "worker/policies/policy.hpp"

namespace vla {

class SmolVlaOptions : public PolicyOptions {
 public:
  int64_t n_obs_steps = 1;
  int64_t chunk_size = 50;
  int64_t n_action_steps = 50;
  std::string normalize_visual = "IDENTITY", normalize_state = "MEAN_STD", normalize_action = "MEAN_STD";
  int64_t max_state_dim = 32;
  int64_t max_action_dim = 32;
  std::vector<int64_t> resize_imgs_with_padding = {512, 512};
  int64_t empty_cameras = 0;
  bool adapt_to_pi_aloha = false;
  bool use_delta_joint_actions_aloha = false;
  int64_t tokenizer_max_length = 48;
  std::string pad_language_to = "longest";
  int64_t num_steps = 10;
  bool use_cache = true;
  bool freeze_vision_encoder = true;
  bool train_expert_only = true;
  bool train_state_proj = true;
  double optimizer_lr = 1e-4;
  std::vector<double> optimizer_betas = {0.9, 0.95};
  double optimizer_eps = 1e-8;
  double optimizer_weight_decay = 1e-10;
  double optimizer_grad_clip_norm = 10;
  int64_t scheduler_warmup_steps = 1000;
  int64_t scheduler_decay_steps = 30000;
  double scheduler_decay_lr = 2.5e-6;
  std::string vlm_model_name = "HuggingFaceTB/SmolVLM2-500M-Video-Instruct";
  bool load_vlm_weights = false;
  bool weights_follow = false;
  bool add_image_special_tokens = false;
  std::string attention_mode = "cross_attn";
  int64_t prefix_length = -1;
  int64_t num_expert_layers = -1;
  int64_t num_vlm_layers = 16;
  int64_t self_attn_every_n_layers = 2;
  double expert_width_multiplier = 0.75;
  double min_period = 4e-3;
  double max_period = 4.0;
  std::string loss_version = "0.6";
  std::string vlm_dtype = "auto";

  void describe(cxxrun::OptionTable& table) override;
  void validate(const PolicyFeatures& features) const override;
  OptimizerOptions optimizer_preset() const override;
  std::optional<SchedulerOptions> scheduler_preset() const override;
  data::SampleRequest sample_request(const PolicyFeatures& features) const override;
  std::map<data::FeatureType, NormalizationMode> normalization() const override;
  std::optional<TextProcessor> text_processor() const override;
};

// Cameras that a configuration of LeRobot names beside the dataset's: "observation.images.empty_camera_0" …
std::string empty_camera_key(int64_t number);
bool is_empty_camera(const std::string& key);

}  // namespace vla
