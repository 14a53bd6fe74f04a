#include "worker/policies/smolvla/smolvla_options.hpp"

#include <numeric>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "worker/policies/normalizer.hpp"

namespace vla {

using cxxrun::UsageError;

void SmolVlaOptions::describe(cxxrun::OptionTable& table) {
  const std::vector<std::string> modes = {"MEAN_STD", "MIN_MAX", "IDENTITY"};
  table.add("n_obs_steps", n_obs_steps, "observations the policy sees; SmolVLA sees one").at_least(1).at_most(1);
  table.add("chunk_size", chunk_size, "actions predicted at once").at_least(1).in("frames");
  table.add("n_action_steps", n_action_steps, "actions of a chunk that are executed before the next prediction").at_least(1).in("frames");
  table.add("normalization_mapping.VISUAL", normalize_visual, "normalization of images").one_of(modes);
  table.add("normalization_mapping.STATE", normalize_state, "normalization of the robot's state").one_of(modes);
  table.add("normalization_mapping.ACTION", normalize_action, "normalization of actions").one_of(modes);
  table.add("max_state_dim", max_state_dim, "the robot's state is padded with zeros to this size").at_least(1);
  table.add("max_action_dim", max_action_dim, "actions are padded with zeros to this size").at_least(1);
  table.add("resize_imgs_with_padding", resize_imgs_with_padding,
            "width and height to which images are resized, their aspect kept, the rest padded on the left and on top").in("pixels").at_least(1);
  table.add("empty_cameras", empty_cameras, "cameras beside the dataset's that a base model was trained with; they are masked").at_least(0).at_most(64);
  table.add("adapt_to_pi_aloha", adapt_to_pi_aloha, "not supported: must be false");
  table.add("use_delta_joint_actions_aloha", use_delta_joint_actions_aloha, "not supported, neither by LeRobot: must be false");
  table.add("tokenizer_max_length", tokenizer_max_length, "longest task").at_least(1).in("tokens");
  table.add("pad_language_to", pad_language_to, "tasks are padded to the longest one or to tokenizer_max_length; the numbers are the same")
      .one_of({"longest", "max_length"});
  table.add("num_steps", num_steps, "steps of the integration that makes actions of noise").at_least(1);
  table.add("use_cache", use_cache, "compute the observation's keys and values once for all these steps; false gives the same, slower");
  table.add("freeze_vision_encoder", freeze_vision_encoder, "do not train the image encoder");
  table.add("train_expert_only", train_expert_only, "train nothing of the vision-language model");
  table.add("train_state_proj", train_state_proj, "train the projection of the robot's state");
  table.add("optimizer_lr", optimizer_lr, "preset of optimizer.lr").at_least(0);
  table.add("optimizer_betas", optimizer_betas, "presets of optimizer.beta1 and beta2").at_least(0).at_most(1);
  table.add("optimizer_eps", optimizer_eps, "preset of optimizer.eps").at_least(0);
  table.add("optimizer_weight_decay", optimizer_weight_decay, "preset of optimizer.weight_decay").at_least(0);
  table.add("optimizer_grad_clip_norm", optimizer_grad_clip_norm, "preset of optimizer.grad_clip_norm").at_least(0);
  table.add("scheduler_warmup_steps", scheduler_warmup_steps, "preset of scheduler.warmup_steps").at_least(0).in("steps");
  table.add("scheduler_decay_steps", scheduler_decay_steps, "preset of scheduler.decay_steps").at_least(0).in("steps");
  table.add("scheduler_decay_lr", scheduler_decay_lr, "preset of scheduler.decay_lr").at_least(0);
  table.add("vlm_model_name", vlm_model_name,
            "vision-language model: a folder, or a name in the Hugging Face cache; config.json gives the sizes, tokenizer.json reads the tasks");
  table.add("load_vlm_weights", load_vlm_weights, "start from that model's weights, in bfloat16 as LeRobot does; false: from random ones");
  table.add("weights_follow", weights_follow, "a checkpoint's weights follow, so load_vlm_weights reads none").transient();
  table.add("add_image_special_tokens", add_image_special_tokens, "frame each image by the model's special tokens");
  table.add("attention_mode", attention_mode, "what the action expert attends to in the layers that self_attn_every_n_layers leaves: "
            "cross_attn the observation alone, self_attn actions too").one_of({"cross_attn", "self_attn"});
  table.add("prefix_length", prefix_length, "the observation's tokens are padded to this number; not above 0 = not padded").in("tokens");
  table.add("num_expert_layers", num_expert_layers, "layers of the action expert; not above 0 = as many as num_vlm_layers");
  table.add("num_vlm_layers", num_vlm_layers, "first layers of the vision-language model that are used; not above 0 = all");
  table.add("self_attn_every_n_layers", self_attn_every_n_layers, "every how many layers actions attend to each other");
  table.add("expert_width_multiplier", expert_width_multiplier, "width of the action expert by that of the vision-language model").at_least(0.01).at_most(16);
  table.add("min_period", min_period, "shortest period of the sinusoids that encode the flow's time").at_least(1e-12);
  table.add("max_period", max_period, "longest period of these").at_least(1e-12);
  table.add("loss_version", loss_version, "loss of LeRobot 0.6, the mean over valid actions; of 0.5.1, in which padded actions count as zero; of "
            "0.5.0, in which they and the padding of max_action_dim count fully").one_of({"0.6", "0.5.1", "0.5.0"});
  table.add("vlm_dtype", vlm_dtype, "with training.precision fp32 or bf16-mixed, the dtype of the vision-language model and of the action expert "
            "but for the keys and values of its cross-attention; auto: LeRobot's, bfloat16 where load_vlm_weights or config.json says so")
      .one_of({"auto", "float32", "bfloat16"});
  describe_lerobot_keys(table);
}

constexpr char kEmptyCamera[] = "observation.images.empty_camera_";

std::string empty_camera_key(int64_t number) { return kEmptyCamera + std::to_string(number); }

bool is_empty_camera(const std::string& key) { return key.starts_with(kEmptyCamera); }

void SmolVlaOptions::validate(const PolicyFeatures& features) const {
  if (n_action_steps > chunk_size) {
    throw UsageError("policy.n_action_steps = {} is above policy.chunk_size = {}: lower it", n_action_steps, chunk_size);
  }
  if (adapt_to_pi_aloha || use_delta_joint_actions_aloha) {
    throw UsageError("policy.{} = true is not supported: set it to false",
                     adapt_to_pi_aloha ? "adapt_to_pi_aloha" : "use_delta_joint_actions_aloha");
  }
  if (resize_imgs_with_padding.size() != 2) {
    throw UsageError("policy.resize_imgs_with_padding = [{}] is not a width and a height; give the images' own to leave them as they are", fmt::join(resize_imgs_with_padding, ", "));
  }
  if (optimizer_betas.size() != 2) throw UsageError("policy.optimizer_betas = [{}] are not two numbers", fmt::join(optimizer_betas, ", "));
  if (min_period > max_period) throw UsageError("policy.min_period = {} is above policy.max_period = {}", min_period, max_period);
  bool has_camera = false;
  for (const PolicyFeature& input : features.inputs) {
    if (input.type != data::FeatureType::kVisual) continue;
    has_camera |= !is_empty_camera(input.key);
    if (input.shape.size() != 3 || input.shape[0] != 3) {
      throw UsageError("policy smolvla needs images of 3 channels; '{}' has shape [{}]", input.key, fmt::join(input.shape, ", "));
    }
  }
  if (!has_camera) throw UsageError("policy smolvla needs at least one image among the dataset's features");
  const auto require_vector = [](const std::vector<PolicyFeature>& list, const char* key, const char* option, int64_t largest) {
    const auto found = std::ranges::find(list, key, &PolicyFeature::key);
    if (found == list.end()) throw UsageError("policy smolvla needs the feature '{}'; the dataset has none", key);
    if (found->shape.size() != 1 || found->shape[0] > largest) {
      throw UsageError("policy smolvla needs '{}' to be a vector of at most policy.{} = {}; it has shape [{}]", key, option, largest,
                       fmt::join(found->shape, ", "));
    }
  };
  require_vector(features.inputs, "observation.state", "max_state_dim", max_state_dim);
  require_vector(features.outputs, "action", "max_action_dim", max_action_dim);
}

OptimizerOptions SmolVlaOptions::optimizer_preset() const {
  OptimizerOptions preset;
  preset.lr = optimizer_lr;
  preset.beta1 = optimizer_betas.at(0);
  preset.beta2 = optimizer_betas.at(1);
  preset.eps = optimizer_eps;
  preset.weight_decay = optimizer_weight_decay;
  preset.grad_clip_norm = optimizer_grad_clip_norm;
  preset.master_weights = false;  // LeRobot updates the expert's bfloat16 parameters themselves
  return preset;
}

std::optional<SchedulerOptions> SmolVlaOptions::scheduler_preset() const {
  SchedulerOptions preset;
  preset.type = "cosine_decay_with_warmup";
  preset.warmup_steps = scheduler_warmup_steps;
  preset.decay_steps = scheduler_decay_steps;
  preset.decay_lr = scheduler_decay_lr;
  return preset;
}

data::SampleRequest SmolVlaOptions::sample_request(const PolicyFeatures& features) const {
  data::SampleRequest request;
  for (const PolicyFeature& input : features.inputs) {
    const bool is_camera = input.type == data::FeatureType::kVisual && !is_empty_camera(input.key);
    if (is_camera || input.key == "observation.state") request.push_back({input.key, {}});
  }
  std::vector<int64_t> chunk(chunk_size);
  std::iota(chunk.begin(), chunk.end(), 0);
  request.push_back({"action", chunk});
  return request;
}

std::map<data::FeatureType, NormalizationMode> SmolVlaOptions::normalization() const {
  return {{data::FeatureType::kVisual, normalization_mode(normalize_visual)},
          {data::FeatureType::kState, normalization_mode(normalize_state)},
          {data::FeatureType::kAction, normalization_mode(normalize_action)}};
}

std::optional<TextProcessor> SmolVlaOptions::text_processor() const {
  return TextProcessor{.new_line_step = "smolvla_new_line_processor", .tokenizer = vlm_model_name, .max_length = tokenizer_max_length,
                       .padding = pad_language_to};
}

}  // namespace vla
