#include "worker/data/inspect/dataset_check.hpp"

#include <array>
#include <cmath>

#include <fmt/ranges.h>

#include "worker/data/frame_reader.hpp"

namespace vla::data {
namespace {

constexpr const char* kRecompute = "recompute the statistics from the data";
// Shorter episodes may end before a joint has moved.
constexpr int64_t kFramesToMove = 10;
constexpr size_t kListed = 10;
// Differences of statistics in standard deviations, or in shares of the range.
constexpr double kContradicts = 0.1, kIsOff = 0.01;
// Statistics of pictures are made of some frames, at a lower resolution.
constexpr double kPictureMeanIsOff = 0.1;

bool is_policy_input(FeatureType type) {
  return type == FeatureType::kState || type == FeatureType::kEnvironment || type == FeatureType::kAction;
}

template <class Number>
std::string listed(const std::vector<Number>& numbers) {
  const size_t shown = std::min(numbers.size(), kListed);
  const std::string more = numbers.size() > shown ? fmt::format(" and {} more", numbers.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     more);
}

void check_variance(const Feature& feature, const std::vector<Moments>& moments, std::vector<Finding>& out) {
  std::vector<size_t> constant;
  for (size_t i = 0; i < moments.size(); ++i) {
    if (moments[i].is_constant() && moments[i].count > 1) constant.push_back(i);
  }
  if (constant.empty()) return;
  out.push_back({Severity::kWarning,
                 "zero_variance",
                 {.feature = feature.key},
                 fmt::format("{} of {} numbers have the same value in every frame: {}", constant.size(), moments.size(),
                             listed(constant)),
                 "a policy learns nothing from them; check that the recording stored them"});
}

void check_joints(const Dataset& dataset, const std::vector<EpisodeSummary>& summaries, size_t feature,
                  const std::vector<Moments>& whole, std::vector<Finding>& out) {
  for (size_t joint = 0; joint < whole.size(); ++joint) {
    if (whole[joint].is_constant()) continue;
    std::vector<int64_t> frozen;
    for (size_t e = 0; e < summaries.size(); ++e) {
      const Moments& moments = summaries[e].moments[feature][joint];
      if (moments.is_constant() && moments.count >= kFramesToMove) frozen.push_back(dataset.episodes()[e].index);
    }
    if (frozen.empty()) continue;
    const std::string& key = dataset.features()[feature].key;
    out.push_back(
        {Severity::kWarning,
         "frozen_joint",
         {.episode = frozen.front(), .feature = key},
         fmt::format("[{}] does not change at all in {} of {} episodes: {}", joint, frozen.size(), summaries.size(),
                     listed(frozen)),
         "look at them (vla_worker data view); leave episodes out in which the robot's state was not recorded"});
  }
}

double value_of(const Moments& moments, std::string_view stat) {
  if (stat == "mean") return moments.mean;
  if (stat == "std") return moments.std();
  return stat == "min" ? moments.min : moments.max;
}

// How far the statistic is from the data, in standard deviations (mean, std) or shares of the range (min, max).
double difference(const Moments& moments, std::string_view stat, double stored, bool is_whole) {
  const bool is_bound = stat == "min" || stat == "max";
  const double size = std::max(std::abs(moments.min), std::abs(moments.max));
  // LeRobot squares in float32, which leaves few digits of a small std of large numbers.
  const double noise = size * (stat == "std" ? 5e-2 : 1e-4);
  const double scale = std::max({is_bound ? moments.max - moments.min : moments.std(), noise, 1e-12});
  const double real = value_of(moments, stat);
  if (is_whole) return std::abs(stored - real) / scale;
  if (!is_bound) return 0;  // of some episodes only
  return std::max(0.0, stat == "min" ? stored - real : real - stored) / scale;
}

void check_numbers(const Feature& feature, const std::map<std::string, StatTensor>& stats,
                   const std::vector<Moments>& moments, bool is_whole, std::vector<Finding>& out) {
  for (const std::string stat : {"mean", "std", "min", "max"}) {
    const auto found = stats.find(stat);
    if (found == stats.end()) continue;
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < moments.size(); ++i) {
      if (moments[i].count == 0) continue;
      const double off = difference(moments[i], stat, found->second.values[i], is_whole);
      if (off > worst) {
        worst = off;
        at = i;
      }
    }
    if (worst <= kIsOff) continue;
    out.push_back({worst > kContradicts ? Severity::kError : Severity::kWarning,
                   "statistics",
                   {.feature = feature.key},
                   fmt::format("'{}'[{}] is {:.6g}, but of the data {:.6g}", stat, at, found->second.values[at],
                               value_of(moments[at], stat)),
                   kRecompute});
  }
}

void check_pictures(const Feature& feature, const std::map<std::string, StatTensor>& stats,
                    const std::vector<Moments>& channels, std::vector<Finding>& out) {
  for (const auto& [stat, tensor] : stats) {
    const bool is_value = stat == "mean" || stat == "std" || stat == "min" || stat == "max";
    const auto high = std::ranges::find_if(tensor.values, [](double value) { return value < 0 || value > 1.01; });
    if (!is_value || high == tensor.values.end()) continue;
    out.push_back({Severity::kError,
                   "statistics",
                   {.feature = feature.key},
                   fmt::format("'{}' is {:.6g}, but pictures are normalised in [0, 1]", stat, *high),
                   kRecompute});
    return;
  }
  const auto mean = stats.find("mean");
  for (size_t i = 0; i < channels.size() && mean != stats.end(); ++i) {
    if (channels[i].count == 0 || std::abs(mean->second.values[i] - channels[i].mean) < kPictureMeanIsOff) continue;
    out.push_back({Severity::kWarning,
                   "statistics",
                   {.feature = feature.key},
                   fmt::format("'mean' of colour {} is {:.3f}, but of the pictures {:.3f}", i, mean->second.values[i],
                               channels[i].mean),
                   kRecompute});
    return;
  }
}

// False when the statistics cannot be compared.
bool check_form(const Feature& feature, const std::map<std::string, StatTensor>& stats, size_t expected,
                std::vector<Finding>& out) {
  for (const auto& [stat, tensor] : stats) {
    const auto is_bad = [&](double value) { return !std::isfinite(value) || (stat == "std" && value < 0); };
    std::string problem;
    if (stat != "count" && tensor.values.size() != expected) {
      problem = fmt::format("has {} values, expected {}", tensor.values.size(), expected);
    } else if (const auto bad = std::ranges::find_if(tensor.values, is_bad); bad != tensor.values.end()) {
      problem = fmt::format("[{}] is {}", bad - tensor.values.begin(), *bad);
    }
    if (problem.empty()) continue;
    out.push_back(
        {Severity::kError, "statistics", {.feature = feature.key}, fmt::format("'{}' {}", stat, problem), kRecompute});
    return false;
  }
  return true;
}

}  // namespace

std::vector<Finding> check_whole(const Dataset& dataset, const std::vector<EpisodeSummary>& summaries, bool is_whole) {
  std::vector<Finding> out;
  for (size_t i = 0; i < dataset.features().size(); ++i) {
    const Feature& feature = dataset.features()[i];
    std::vector<Moments> whole(
        feature.type == FeatureType::kVisual ? 3 : static_cast<size_t>(element_count(feature.shape)));
    for (const EpisodeSummary& summary : summaries) {
      for (size_t k = 0; k < whole.size(); ++k) whole[k].merge(summary.moments[i][k]);
    }
    if (is_policy_input(feature.type)) check_variance(feature, whole, out);
    if (feature.type == FeatureType::kState) check_joints(dataset, summaries, i, whole, out);

    const auto stats = dataset.stats().find(feature.key);
    if (stats == dataset.stats().end()) {
      if (is_policy_input(feature.type))
        out.push_back({Severity::kWarning,
                       "statistics",
                       {.feature = feature.key},
                       "the dataset has no statistics of it",
                       kRecompute});
    } else if (check_form(feature, stats->second, whole.size(), out)) {
      if (feature.type == FeatureType::kVisual)
        check_pictures(feature, stats->second, whole, out);
      else
        check_numbers(feature, stats->second, whole, is_whole, out);
    }
  }
  return out;
}

}  // namespace vla::data
