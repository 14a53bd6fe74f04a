#include "worker/policies/normalizer.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/policies/nn/image_bytes.hpp"

namespace vla {
namespace {

constexpr double kEps = 1e-8;
constexpr double kSmallestRange = 1e-4;  // diffusion_policy's range_eps
constexpr int64_t kXyz = 3;

struct ModeName {
  NormalizationMode mode;
  const char* name;
};
constexpr ModeName kModes[] = {{NormalizationMode::kIdentity, "IDENTITY"},
                               {NormalizationMode::kMeanStd, "MEAN_STD"},
                               {NormalizationMode::kMinMax, "MIN_MAX"},
                               {NormalizationMode::kLimits, "LIMITS"},
                               {NormalizationMode::kLimitsXyz, "LIMITS_XYZ"}};

// float32, as LeRobot holds them, whatever the dtype of the batches.
at::Tensor to_tensor(const data::StatTensor& stat) { return at::tensor(stat.values, at::kDouble).to(at::kFloat).reshape(stat.shape); }

at::Tensor usable_stat(const data::DatasetStats& stats, const PolicyFeature& feature, const std::string& name) {
  const auto of_feature = stats.find(feature.key);
  if (of_feature == stats.end() || !of_feature->second.contains(name)) {
    throw cxxrun::DataError("feature '{}' has no statistic '{}': recompute the dataset's statistics, or use IDENTITY normalization for it",
                            feature.key, name);
  }
  const data::StatTensor& stat = of_feature->second.at(name);
  std::vector<int64_t> expected = feature.shape;
  if (feature.type == data::FeatureType::kVisual) expected = {feature.shape.at(0), 1, 1};
  if (stat.shape != expected) {
    throw cxxrun::DataError("statistic '{}' of feature '{}' has shape [{}] instead of [{}]", name, feature.key,
                            fmt::join(stat.shape, ", "), fmt::join(expected, ", "));
  }
  const auto bad = std::ranges::find_if_not(stat.values, [](double value) { return std::isfinite(value); });
  if (bad != stat.values.end()) {
    throw cxxrun::DataError("statistic '{}' of feature '{}' is {} at element {}: recompute the dataset's statistics", name, feature.key,
                            *bad, bad - stat.values.begin());
  }
  return to_tensor(stat);
}

}  // namespace

NormalizationMode normalization_mode(const std::string& name) {
  const auto row = std::ranges::find_if(kModes, [&](const ModeName& mode) { return name == mode.name; });
  if (row == std::end(kModes)) throw cxxrun::UsageError("unknown normalization '{}' (known: MEAN_STD, MIN_MAX, LIMITS, LIMITS_XYZ, IDENTITY)", name);
  return row->mode;
}

const char* name_of(NormalizationMode mode) {
  return std::ranges::find(kModes, mode, &ModeName::mode)->name;
}

data::DatasetStats with_imagenet_stats(data::DatasetStats stats, const PolicyFeatures& features) {
  for (const PolicyFeature& feature : features.inputs) {
    if (feature.type != data::FeatureType::kVisual) continue;
    stats[feature.key]["mean"] = {{3, 1, 1}, {0.485, 0.456, 0.406}};
    stats[feature.key]["std"] = {{3, 1, 1}, {0.229, 0.224, 0.225}};
  }
  return stats;
}

std::map<std::string, at::Tensor> stats_to_tensors(const data::DatasetStats& stats) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [key, of_feature] : stats) {
    for (const auto& [name, stat] : of_feature) tensors[key + "." + name] = to_tensor(stat);
  }
  return tensors;
}

data::DatasetStats stats_from_tensors(const std::map<std::string, at::Tensor>& tensors) {
  data::DatasetStats stats;
  for (const auto& [name, tensor] : tensors) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) throw cxxrun::DataError("statistic '{}' is not named <feature>.<stat>", name);
    const at::Tensor values = tensor.to(at::kCPU, at::kDouble).contiguous();
    const double* first = values.const_data_ptr<double>();
    stats[name.substr(0, dot)][name.substr(dot + 1)] = {tensor.sizes().vec(), {first, first + values.numel()}};
  }
  return stats;
}

Normalizer::Normalizer(const std::map<data::FeatureType, NormalizationMode>& modes, const PolicyFeatures& features,
                       const data::DatasetStats& stats, at::Device device, at::ScalarType floating) {
  for (const auto* list : {&features.inputs, &features.outputs}) {
    for (const PolicyFeature& feature : *list) {
      const auto mode = modes.find(feature.type);
      if (mode == modes.end() || mode->second == NormalizationMode::kIdentity) continue;
      const auto stat = [&](const char* name) { return usable_stat(stats, feature, name).to(floating); };
      Affine affine;
      if (mode->second == NormalizationMode::kMeanStd) {
        affine = {.shift = stat("mean"), .divisor = stat("std") + kEps, .scale = stat("std")};
      } else if (mode->second != NormalizationMode::kMinMax) {
        const at::Tensor range = stat("max") - stat("min");
        const at::Tensor is_constant = range < kSmallestRange;
        at::Tensor half = at::where(is_constant, 1, range / 2), shift = at::where(is_constant, stat("min"), stat("min") + range / 2);
        if (mode->second == NormalizationMode::kLimitsXyz) {
          half.slice(0, kXyz).fill_(1);
          shift.slice(0, kXyz).zero_();
        }
        affine = {.shift = shift, .divisor = half, .scale = half};
      } else {  // 2 (x - min) / (max - min) - 1; a constant feature becomes -1
        const at::Tensor range = stat("max") - stat("min");
        const at::Tensor half = at::where(range == 0, kEps, range) / 2;
        affine = {.shift = stat("min"), .divisor = half, .scale = half, .offset = -1};
      }
      for (at::Tensor* tensor : {&affine.shift, &affine.divisor, &affine.scale}) *tensor = tensor->to(device);
      affines_[feature.key] = affine;
    }
  }
}

void Normalizer::normalize(Batch& batch, at::ScalarType dtype, bool takes_bytes) const {
  for (auto& [key, field] : batch.fields) {
    const auto found = affines_.find(key);
    const Affine affine = found == affines_.end() ? Affine() : found->second;
    if (field.scalar_type() == at::kByte) {
      if (affine.shift.defined() || !takes_bytes) field = images_from_bytes(field, affine.shift, affine.divisor, affine.offset, dtype);
    } else if (affine.shift.defined()) {
      field = field.sub(affine.shift).div_(affine.divisor);
      if (affine.offset != 0) field.add_(affine.offset);
    }
  }
  convert_features(batch, dtype);
}

at::Tensor Normalizer::unnormalize(const at::Tensor& actions) const {
  const auto affine = affines_.find("action");
  if (affine == affines_.end()) return actions;
  return (actions - affine->second.offset) * affine->second.scale + affine->second.shift;
}

}  // namespace vla
