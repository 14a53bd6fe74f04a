#include "worker/policies/diffusion/diffusion_options.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "worker/optim/lr_schedule.hpp"
#include "worker/policies/normalizer.hpp"

namespace vla {

using cxxrun::UsageError;

DiffusionOptions::DiffusionOptions(DiffusionReading reading) : reading_(reading) {
  if (!is_original()) return;
  n_obs_steps = 3;
  horizon = 8;
  n_action_steps = 6;
  drop_last = 0;
  normalize_state = normalize_action = "LIMITS";
  use_group_norm = true;
  down_dims = {256, 512, 1024};
}

void DiffusionOptions::describe(cxxrun::OptionTable& table) {
  std::vector<std::string> modes = {"MEAN_STD", "MIN_MAX", "IDENTITY"};
  if (is_original()) modes.insert(modes.end(), {"LIMITS", "LIMITS_XYZ"});
  table.add("n_obs_steps", n_obs_steps, "observations the policy sees: the current one and those before it").at_least(1).in("frames");
  table.add("horizon", horizon, "actions predicted at once, from the first observation on").at_least(1).in("frames");
  table.add("n_action_steps", n_action_steps, "actions of a prediction that are executed, from the current observation on").at_least(1).in("frames");
  if (!is_original()) table.add("normalization_mapping.VISUAL", normalize_visual, "normalization of images").one_of(modes);
  table.add("normalization_mapping.STATE", normalize_state, "normalization of the robot's state").one_of(modes);
  table.add("normalization_mapping.ACTION", normalize_action, "normalization of actions").one_of(modes);
  table.add("drop_n_last_frames", drop_last, "training does not start at an episode's last frames, whose actions would be mostly padding").at_least(0).in("frames");
  table.add("vision_backbone", vision_backbone, "image encoder").one_of({"resnet18"});
  table.add("resize_shape", resize_shape, "height and width that images are resized to first").at_least(1);
  table.add("crop_ratio", crop_ratio, "of resized images: share of height and width that is kept; below 1 it sets crop_shape").at_least(1e-9).at_most(1);
  table.add("crop_shape", crop_shape, "height and width that images are cut to").at_least(1);
  table.add("crop_is_random", crop_is_random,
            is_original() ? "in training cut every image at a random place; otherwise in the middle"
                          : "in training cut at a random place, the same for the whole batch; otherwise in the middle");
  table.add("use_group_norm", use_group_norm, "image encoder with group norms instead of batch norms");
  if (is_original()) {
    table.add("imagenet_norm", imagenet_norm, "normalize images, which are in [-1, 1] already, with ImageNet's mean and std too, as weights of RoboTwin need it");
  } else {
    table.add("spatial_softmax_num_keypoints", spatial_softmax_num_keypoints, "points in the image that the encoder reports").at_least(1);
  }
  table.add("use_separate_rgb_encoder_per_camera", use_separate_rgb_encoder_per_camera, "an image encoder for each camera instead of one for all");
  table.add("down_dims", down_dims, "channels of the U-Net by level").at_least(1);
  table.add("kernel_size", kernel_size, "kernel of the U-Net's convolutions").at_least(1);
  table.add("n_groups", n_groups, "groups of the U-Net's group norms").at_least(1);
  table.add("diffusion_step_embed_dim", diffusion_step_embed_dim, "size of the embedding of the diffusion's timestep").at_least(4);
  table.add("use_film_scale_modulation", use_film_scale_modulation, "the condition scales channels and not only shifts them");
  table.add("gradient_checkpointing", gradient_checkpointing, "recompute the U-Net's blocks in backward instead of keeping their activations");
  table.add("noise_scheduler_type", noise.type, "how actions are sampled").one_of({"DDPM", "DDIM"});
  table.add("num_train_timesteps", noise.num_train_timesteps, "timesteps of the diffusion").at_least(1).at_most(100000);
  table.add("beta_schedule", noise.beta_schedule, "noise by timestep").one_of({"squaredcos_cap_v2", "linear", "scaled_linear"});
  table.add("beta_start", noise.beta_start, "of linear and scaled_linear: noise of the first timestep").at_least(0).at_most(0.999);
  table.add("beta_end", noise.beta_end, "of linear and scaled_linear: noise of the last timestep").at_least(0).at_most(0.999);
  table.add("prediction_type", noise.prediction_type, "what the U-Net predicts: the noise or the actions").one_of({"epsilon", "sample"});
  table.add("clip_sample", noise.clip_sample, "clip predicted actions while sampling");
  table.add("clip_sample_range", noise.clip_sample_range, "largest normalized action that clipping leaves").at_least(0);
  table.add("num_inference_steps", num_inference_steps, "steps of sampling; none = num_train_timesteps").at_least(1).or_word("none", 0);
  table.add("do_mask_loss_for_padding", do_mask_loss_for_padding, "leave actions past the episode's end out of the loss");
  table.add("optimizer_lr", optimizer_lr, "preset of optimizer.lr").at_least(0);
  table.add("optimizer_betas", optimizer_betas, "preset of optimizer.beta1 and beta2").at_least(0).at_most(1);
  table.add("optimizer_eps", optimizer_eps, "preset of optimizer.eps").at_least(0);
  table.add("optimizer_weight_decay", optimizer_weight_decay, "preset of optimizer.weight_decay").at_least(0);
  table.add("scheduler_name", scheduler_name, "preset of scheduler.name").one_of(diffusers_schedule_names());
  table.add("scheduler_warmup_steps", scheduler_warmup_steps, "preset of scheduler.warmup_steps").at_least(0).in("steps");
  table.add("backbone_weights", backbone_weights,
            "safetensors file with a torchvision resnet18 state dict that the image encoders start from, or none").path();
  describe_lerobot_keys(table);
}

DiffusionInputs diffusion_inputs(const PolicyFeatures& features) {
  DiffusionInputs inputs;
  for (const PolicyFeature& feature : features.inputs) {
    if (feature.type == data::FeatureType::kVisual) inputs.cameras.push_back(&feature);
    if (feature.key == "observation.state") inputs.robot_state = &feature;
    if (feature.type == data::FeatureType::kEnvironment) inputs.environment_state = &feature;
  }
  for (const PolicyFeature& feature : features.outputs) {
    if (feature.key == "action") inputs.action = &feature;
  }
  return inputs;
}

std::vector<int64_t> DiffusionOptions::crop() const {
  if (resize_shape.empty()) return crop_shape;
  if (crop_ratio == 1) return {};
  const auto part = [&](int64_t size) { return static_cast<int64_t>(static_cast<double>(size) * crop_ratio); };
  return {part(resize_shape[0]), part(resize_shape[1])};
}

void DiffusionOptions::validate(const PolicyFeatures& features) const {
  for (const auto& [name, shape] : {std::pair("resize_shape", &resize_shape), {"crop_shape", &crop_shape}}) {
    if (!shape->empty() && shape->size() != 2) throw UsageError("policy.{} = [{}] must be a height and a width", name, fmt::join(*shape, ", "));
  }
  if (optimizer_betas.size() != 2) throw UsageError("policy.optimizer_betas = [{}] must be two numbers", fmt::join(optimizer_betas, ", "));
  if (down_dims.empty() || down_dims.size() > 16) throw UsageError("policy.down_dims has {} levels; the U-Net needs 1 to 16", down_dims.size());
  // LeRobot asks for one halving more than the U-Net makes.
  const int64_t factor = int64_t{1} << (down_dims.size() - (is_original() ? 1 : 0));
  if (horizon % factor != 0) {
    throw UsageError("policy.horizon = {} is not divisible by {}, as {} levels of policy.down_dims need", horizon, factor, down_dims.size());
  }
  if (n_action_steps > horizon - n_obs_steps + 1) {
    throw UsageError("policy.n_action_steps = {} is above horizon - n_obs_steps + 1 = {}: lower it", n_action_steps, horizon - n_obs_steps + 1);
  }
  for (const int64_t dim : down_dims) {
    if (dim % n_groups != 0) throw UsageError("policy.down_dims: {} is not divisible by policy.n_groups = {}", dim, n_groups);
  }
  if (down_dims[0] % 8 != 0) throw UsageError("policy.down_dims: the first must be divisible by 8, not {}", down_dims[0]);
  if (kernel_size % 2 == 0) throw UsageError("policy.kernel_size = {} must be odd", kernel_size);
  if (diffusion_step_embed_dim % 2 != 0) throw UsageError("policy.diffusion_step_embed_dim = {} must be even", diffusion_step_embed_dim);
  if (num_inference_steps > noise.num_train_timesteps) {
    throw UsageError("policy.num_inference_steps = {} is above policy.num_train_timesteps = {}", num_inference_steps, noise.num_train_timesteps);
  }
  if (use_group_norm && has_backbone_weights()) {
    throw UsageError("policy.backbone_weights are of a resnet with batch norms: set policy.use_group_norm to false, or backbone_weights to none");
  }

  const DiffusionInputs inputs = diffusion_inputs(features);
  if (inputs.action == nullptr) throw UsageError("policy diffusion needs the feature 'action'; the dataset has none");
  if (inputs.robot_state == nullptr) throw UsageError("policy diffusion needs the feature 'observation.state'; the dataset has none");
  if (inputs.cameras.empty() && inputs.environment_state == nullptr) {
    throw UsageError("policy diffusion needs at least one image or 'observation.environment_state' among the dataset's features");
  }
  for (const PolicyFeature* camera : inputs.cameras) {
    if (camera->shape.size() != 3 || camera->shape[0] != 3) {
      throw UsageError("policy diffusion needs images of 3 channels; '{}' has shape [{}]", camera->key, fmt::join(camera->shape, ", "));
    }
    if (camera->shape != inputs.cameras[0]->shape) {
      throw UsageError("policy diffusion needs images of one size; '{}' has shape [{}], '{}' [{}]", camera->key, fmt::join(camera->shape, ", "),
                       inputs.cameras[0]->key, fmt::join(inputs.cameras[0]->shape, ", "));
    }
    const std::vector<int64_t> window = crop();
    if (resize_shape.empty() && !window.empty() && (window[0] > camera->shape[1] || window[1] > camera->shape[2])) {
      throw UsageError("policy.crop_shape = [{}] is larger than the images of '{}', {}x{}", fmt::join(window, ", "), camera->key, camera->shape[1], camera->shape[2]);
    }
  }
  for (const PolicyFeature* feature : {inputs.robot_state, inputs.environment_state, inputs.action}) {
    if (feature != nullptr && feature->shape.size() != 1) {
      throw UsageError("policy diffusion needs '{}' to be a vector; it has shape [{}]", feature->key, fmt::join(feature->shape, ", "));
    }
  }
}

OptimizerOptions DiffusionOptions::optimizer_preset() const {
  OptimizerOptions preset;
  preset.type = is_original() ? "adamw" : "adam";
  if (is_original()) preset.grad_clip_norm = 0;
  preset.lr = optimizer_lr;
  preset.beta1 = optimizer_betas.at(0);
  preset.beta2 = optimizer_betas.at(1);
  preset.eps = optimizer_eps;
  preset.weight_decay = optimizer_weight_decay;
  return preset;
}

std::optional<SchedulerOptions> DiffusionOptions::scheduler_preset() const {
  SchedulerOptions preset;
  preset.type = "diffuser";
  preset.name = scheduler_name;
  preset.warmup_steps = scheduler_warmup_steps;
  return preset;
}

data::SampleRequest DiffusionOptions::sample_request(const PolicyFeatures& features) const {
  const DiffusionInputs inputs = diffusion_inputs(features);
  const auto frames = [&](int64_t count) {
    std::vector<int64_t> deltas(count);
    std::iota(deltas.begin(), deltas.end(), 1 - n_obs_steps);
    return deltas;
  };
  data::SampleRequest request;
  for (const PolicyFeature* camera : inputs.cameras) request.push_back({camera->key, frames(n_obs_steps)});
  for (const PolicyFeature* feature : {inputs.robot_state, inputs.environment_state}) {
    if (feature != nullptr) request.push_back({feature->key, frames(n_obs_steps)});
  }
  request.push_back({"action", frames(horizon)});
  return request;
}

std::map<data::FeatureType, NormalizationMode> DiffusionOptions::normalization() const {
  return {{data::FeatureType::kVisual, is_original() ? NormalizationMode::kIdentity : normalization_mode(normalize_visual)},
          {data::FeatureType::kState, normalization_mode(normalize_state)},
          {data::FeatureType::kAction, normalization_mode(normalize_action)}};
}

}  // namespace vla
