// The dataset as training sees it: which episodes are trained on and which are held out, what the policy sees of its features, and
// the loaders' memory.
#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

#include "worker/data/dataset.hpp"
#include "worker/policies/policy.hpp"
#include "worker/train_config.hpp"

namespace vla {

struct TrainingData {
  std::shared_ptr<const data::Dataset> training;
  std::shared_ptr<const data::Dataset> validation;  // null when nothing is held out
  PolicyFeatures features;
  std::vector<data::SamplerPart> parts = {};  // of `training`, when it is a weighted mixture
};

// One dataset or a mixture, split by episodes, with features under the policy's names (`rename_map`). Training does not start at an
// episode's last `drop_n_last_frames`; validation does.
TrainingData open_training_data(const DatasetOptions& options, const std::vector<std::string>& rename_map = {}, bool skip_broken = false,
                                int64_t drop_n_last_frames = 0);

// Images as [channels, height, width]; features that are neither observation nor action are left out.
PolicyFeatures policy_features(const data::Dataset& dataset);

// float [action_dim]: the mean of the actions in the dataset's statistics.
at::Tensor mean_action(const data::DatasetStats& stats, at::Device device, at::ScalarType dtype);

// Slot memory: page-locked when it feeds a GPU, so that copies run beside the computation.
std::shared_ptr<std::byte> allocate_slot(size_t bytes, bool page_locked);

}  // namespace vla
