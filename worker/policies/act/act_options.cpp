#include "worker/policies/act/act_options.hpp"

#include <numeric>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "worker/policies/normalizer.hpp"

namespace vla {

using cxxrun::UsageError;

void ActOptions::describe(cxxrun::OptionTable& table) {
  const std::vector<std::string> modes = {"MEAN_STD", "MIN_MAX", "IDENTITY"};
  table.add("n_obs_steps", n_obs_steps, "observations the policy sees; ACT sees one").at_least(1).at_most(1);
  table.add("chunk_size", chunk_size, "actions predicted at once").at_least(1).in("frames");
  table.add("n_action_steps", n_action_steps, "actions of a chunk that are executed before the next prediction").at_least(1).in("frames");
  table.add("normalization_mapping.VISUAL", normalize_visual, "normalization of images").one_of(modes);
  table.add("normalization_mapping.STATE", normalize_state, "normalization of the robot's state").one_of(modes);
  table.add("normalization_mapping.ACTION", normalize_action, "normalization of actions").one_of(modes);
  table.add("vision_backbone", vision_backbone, "image encoder").one_of({"resnet18"});
  table.add("replace_final_stride_with_dilation", replace_final_stride_with_dilation, "not possible with resnet18: must be false");
  table.add("pre_norm", pre_norm, "normalize before each transformer block instead of after it");
  table.add("dim_model", dim_model, "width of the transformer").at_least(4);
  table.add("n_heads", n_heads, "attention heads").at_least(1);
  table.add("dim_feedforward", dim_feedforward, "width of the feed-forward layers").at_least(1);
  table.add("feedforward_activation", feedforward_activation, "activation of the feed-forward layers").one_of({"relu", "gelu"});
  table.add("n_encoder_layers", n_encoder_layers, "layers of the transformer encoder").at_least(0);
  table.add("n_decoder_layers", n_decoder_layers, "layers of the transformer decoder").at_least(1);
  table.add("use_vae", use_vae, "train with the variational objective");
  table.add("latent_dim", latent_dim, "size of the latent").at_least(1);
  table.add("n_vae_encoder_layers", n_vae_encoder_layers, "layers of the VAE's encoder").at_least(0);
  table.add("dropout", dropout, "probability of dropping an activation or attention weight").at_least(0).at_most(0.999);
  table.add("kl_weight", kl_weight, "weight of the KL divergence in the loss").at_least(0);
  table.add("optimizer_lr", optimizer_lr, "preset of optimizer.lr").at_least(0);
  table.add("optimizer_weight_decay", optimizer_weight_decay, "preset of optimizer.weight_decay").at_least(0);
  table.add("optimizer_lr_backbone", optimizer_lr_backbone, "learning rate of the image encoder").at_least(0);
  table.add("backbone_weights", backbone_weights,
            "safetensors file with a torchvision resnet18 state dict that the image encoder starts from, or none").path();
  describe_lerobot_keys(table);
}

ActInputs act_inputs(const PolicyFeatures& features) {
  ActInputs inputs;
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

void ActOptions::validate(const PolicyFeatures& features) const {
  if (n_action_steps > chunk_size) {
    throw UsageError("policy.n_action_steps = {} is above policy.chunk_size = {}: lower it", n_action_steps, chunk_size);
  }
  if (dim_model % n_heads != 0) {
    throw UsageError("policy.dim_model = {} is not divisible by policy.n_heads = {}", dim_model, n_heads);
  }
  if (dim_model % 4 != 0) throw UsageError("policy.dim_model = {} is not divisible by 4, as positions in images need", dim_model);
  if (replace_final_stride_with_dilation) {
    throw UsageError("policy.replace_final_stride_with_dilation = true is not possible with resnet18: set it to false");
  }
  const ActInputs inputs = act_inputs(features);
  if (inputs.action == nullptr) throw UsageError("policy act needs the feature 'action'; the dataset has none");
  if (inputs.cameras.empty() && inputs.environment_state == nullptr) {
    throw UsageError("policy act needs at least one image or 'observation.environment_state' among the dataset's features");
  }
  for (const PolicyFeature* camera : inputs.cameras) {
    if (camera->shape.size() != 3 || camera->shape[0] != 3) {
      throw UsageError("policy act needs images of 3 channels; '{}' has shape [{}]", camera->key, fmt::join(camera->shape, ", "));
    }
  }
  for (const PolicyFeature* feature : {inputs.robot_state, inputs.environment_state, inputs.action}) {
    if (feature != nullptr && feature->shape.size() != 1) {
      throw UsageError("policy act needs '{}' to be a vector; it has shape [{}]", feature->key, fmt::join(feature->shape, ", "));
    }
  }
}

OptimizerOptions ActOptions::optimizer_preset() const {
  OptimizerOptions preset;
  preset.lr = optimizer_lr;
  preset.weight_decay = optimizer_weight_decay;
  return preset;
}

data::SampleRequest ActOptions::sample_request(const PolicyFeatures& features) const {
  const ActInputs inputs = act_inputs(features);
  data::SampleRequest request;
  for (const PolicyFeature* camera : inputs.cameras) request.push_back({camera->key, {}});
  for (const PolicyFeature* feature : {inputs.robot_state, inputs.environment_state}) {
    if (feature != nullptr) request.push_back({feature->key, {}});
  }
  std::vector<int64_t> chunk(chunk_size);
  std::iota(chunk.begin(), chunk.end(), 0);
  request.push_back({"action", chunk});
  return request;
}

std::map<data::FeatureType, NormalizationMode> ActOptions::normalization() const {
  return {{data::FeatureType::kVisual, normalization_mode(normalize_visual)},
          {data::FeatureType::kState, normalization_mode(normalize_state)},
          {data::FeatureType::kAction, normalization_mode(normalize_action)}};
}

}  // namespace vla
