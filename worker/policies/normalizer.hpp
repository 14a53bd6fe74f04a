// Normalizes batches and un-normalizes actions with a dataset's statistics, as LeRobot 0.6.1's processors do: float32 statistics,
// eps only in the forward direction, no clipping. Statistics that a used feature lacks, or that are not finite, are DataErrors
// (LeRobot silently leaves such features as they are). Immutable after construction.
#pragma once

#include <map>
#include <string>

#include "worker/policies/policy.hpp"

namespace vla {

// "MEAN_STD", "MIN_MAX" or "IDENTITY", as in LeRobot's config.json. "LIMITS": diffusion_policy's MIN_MAX, of which features that hardly
// change (by less than 1e-4) are only moved to 0. "LIMITS_XYZ": LIMITS of the first three numbers, a position; the others are left as
// they are. UsageError for anything else.
NormalizationMode normalization_mode(const std::string& name);
const char* name_of(NormalizationMode mode);

// The statistics with ImageNet's mean and std for every image feature: what pretrained image encoders expect.
data::DatasetStats with_imagenet_stats(data::DatasetStats stats, const PolicyFeatures& features);

// Statistics as LeRobot's processors save them, "<feature>.<stat>" float32, and back.
std::map<std::string, at::Tensor> stats_to_tensors(const data::DatasetStats& stats);
data::DatasetStats stats_from_tensors(const std::map<std::string, at::Tensor>& tensors);

class Normalizer {
 public:
  // Feature types that `modes` does not name are left as they are. `floating` is the dtype of the batches.
  Normalizer(const std::map<data::FeatureType, NormalizationMode>& modes, const PolicyFeatures& features,
             const data::DatasetStats& stats, at::Device device, at::ScalarType floating = at::kFloat);

  // Every feature that the batch has; then numbers and bytes of images become `dtype`. The tensors that the batch had stay as they are.
  // Images without normalization stay bytes if `takes_bytes`.
  void normalize(Batch& batch, at::ScalarType dtype = at::kFloat, bool takes_bytes = false) const;
  at::Tensor unnormalize(const at::Tensor& actions) const;  // [..., action_dim] -> the same, in the dataset's units

 private:
  // normalized = (x - shift) / divisor + offset; x = (normalized - offset) * scale + shift.
  struct Affine {
    at::Tensor shift, divisor, scale;
    double offset = 0;
  };
  std::map<std::string, Affine> affines_;
};

}  // namespace vla
