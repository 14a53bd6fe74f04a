// Options of ACT (Zhao et al., "Learning fine-grained bimanual manipulation with low-cost hardware") under the names, and with the
// defaults, of LeRobot 0.6.1's ACTConfig. `backbone_weights` is ours.
#pragma once

#include <string>

#include "worker/policies/policy.hpp"

namespace vla {

class ActOptions : public PolicyOptions {
 public:
  int64_t n_obs_steps = 1;
  int64_t chunk_size = 100;
  int64_t n_action_steps = 100;
  std::string normalize_visual = "MEAN_STD", normalize_state = "MEAN_STD", normalize_action = "MEAN_STD";
  std::string vision_backbone = "resnet18";
  bool replace_final_stride_with_dilation = false;
  bool pre_norm = false;
  int64_t dim_model = 512;
  int64_t n_heads = 8;
  int64_t dim_feedforward = 3200;
  std::string feedforward_activation = "relu";
  int64_t n_encoder_layers = 4;
  int64_t n_decoder_layers = 1;
  bool use_vae = true;
  int64_t latent_dim = 32;
  int64_t n_vae_encoder_layers = 4;
  double dropout = 0.1;
  double kl_weight = 10;
  double optimizer_lr = 1e-5;
  double optimizer_weight_decay = 1e-4;
  double optimizer_lr_backbone = 1e-5;
  std::string backbone_weights = "none";

  void describe(cxxrun::OptionTable& table) override;
  void validate(const PolicyFeatures& features) const override;
  OptimizerOptions optimizer_preset() const override;
  data::SampleRequest sample_request(const PolicyFeatures& features) const override;
  std::map<data::FeatureType, NormalizationMode> normalization() const override;
};

// The features that ACT uses: images in order, and the 1-D ones or null.
struct ActInputs {
  std::vector<const PolicyFeature*> cameras;
  const PolicyFeature* robot_state = nullptr;  // "observation.state"
  const PolicyFeature* environment_state = nullptr;  // "observation.environment_state"
  const PolicyFeature* action = nullptr;
};
ActInputs act_inputs(const PolicyFeatures& features);

}  // namespace vla
