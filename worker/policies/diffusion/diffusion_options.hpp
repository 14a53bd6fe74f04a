// Options of diffusion policy (Chi et al., "Diffusion policy: visuomotor policy learning via action diffusion") in two readings, both
// under the names of LeRobot 0.6.1's DiffusionConfig: LeRobot's, with its defaults, and the original's (real-stanford/diffusion_policy,
// as RoboTwin's policy/DP configures it), whose weights have other names and whose images are encoded differently. `backbone_weights` and
// `imagenet_norm` are ours. What LeRobot writes as null is "none" or empty here.
#pragma once

#include <string>
#include <vector>

#include "worker/policies/nn/noise_scheduler.hpp"
#include "worker/policies/policy.hpp"

namespace vla {

enum class DiffusionReading { kLeRobot, kOriginal };

class DiffusionOptions : public PolicyOptions {
 public:
  explicit DiffusionOptions(DiffusionReading reading = DiffusionReading::kLeRobot);
  bool is_original() const { return reading_ == DiffusionReading::kOriginal; }

  int64_t n_obs_steps = 2;
  int64_t horizon = 64;
  int64_t n_action_steps = 32;
  std::string normalize_visual = "MEAN_STD", normalize_state = "MIN_MAX", normalize_action = "MIN_MAX";
  int64_t drop_last = 7;
  std::string vision_backbone = "resnet18";
  std::vector<int64_t> resize_shape = {};  // height, width
  double crop_ratio = 1;
  std::vector<int64_t> crop_shape = {};  // height, width; see crop()
  bool crop_is_random = true;
  bool use_group_norm = false;
  int64_t spatial_softmax_num_keypoints = 32;
  bool use_separate_rgb_encoder_per_camera = true;
  std::vector<int64_t> down_dims = {512, 1024, 2048};
  int64_t kernel_size = 5;
  int64_t n_groups = 8;
  int64_t diffusion_step_embed_dim = 128;
  bool use_film_scale_modulation = true;
  bool gradient_checkpointing = false;
  NoiseSchedulerOptions noise = {};
  int64_t num_inference_steps = 0;  // 0: as many as in training
  bool do_mask_loss_for_padding = false;
  double optimizer_lr = 1e-4;
  std::vector<double> optimizer_betas = {0.95, 0.999};
  double optimizer_eps = 1e-8;
  double optimizer_weight_decay = 1e-6;
  std::string scheduler_name = "cosine";
  int64_t scheduler_warmup_steps = 500;
  std::string backbone_weights = "none";
  bool imagenet_norm = true;  // of the original's images, which are in [-1, 1] already

  void describe(cxxrun::OptionTable& table) override;
  void validate(const PolicyFeatures& features) const override;
  OptimizerOptions optimizer_preset() const override;
  std::optional<SchedulerOptions> scheduler_preset() const override;
  data::SampleRequest sample_request(const PolicyFeatures& features) const override;
  std::map<data::FeatureType, NormalizationMode> normalization() const override;
  int64_t drop_n_last_frames() const override { return drop_last; }

  bool has_backbone_weights() const { return !backbone_weights.empty() && backbone_weights != "none"; }
  std::vector<int64_t> crop() const;  // the window that images are cut to after resizing, or empty: a ratio comes before a shape

 private:
  DiffusionReading reading_;
};

// Options of the policy type "diffusion_policy".
class OriginalDiffusionOptions : public DiffusionOptions {
 public:
  OriginalDiffusionOptions() : DiffusionOptions(DiffusionReading::kOriginal) {}
};

// The features that the policy uses.
struct DiffusionInputs {
  std::vector<const PolicyFeature*> cameras;
  const PolicyFeature* robot_state = nullptr;  // "observation.state"
  const PolicyFeature* environment_state = nullptr;
  const PolicyFeature* action = nullptr;
};
DiffusionInputs diffusion_inputs(const PolicyFeatures& features);

}  // namespace vla
