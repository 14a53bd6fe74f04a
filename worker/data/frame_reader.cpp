#include "worker/data/frame_reader.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "common/error.hpp"
#include "common/registry.hpp"

namespace vla::data {
namespace {

constexpr const char* kBookkeeping[] = {"index", "episode_index", "frame_index", "task_index"};

size_t find_feature(const std::vector<Feature>& features, const std::string& key) {
  std::vector<std::string_view> known;
  for (size_t i = 0; i < features.size(); ++i) {
    if (features[i].key == key) return i;
    known.push_back(features[i].key);
  }
  throw cxxrun::UsageError("the dataset has no feature '{}' (it has: {}){}", key, fmt::join(known, ", "),
                           cxxrun::did_you_mean(key, known));
}

}  // namespace

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

size_t bytes_per_frame(const Feature& feature) {
  return size_of(feature.dtype) * static_cast<size_t>(element_count(feature.shape));
}

FeatureType numeric_feature_type(const std::string& key) {
  if (key == "observation.environment_state") return FeatureType::kEnvironment;
  if (key.starts_with("observation")) return FeatureType::kState;
  if (key.starts_with("action")) return FeatureType::kAction;
  return FeatureType::kOther;
}

SampleLayout make_layout(const std::vector<Feature>& features, const SampleRequest& request) {
  SampleLayout layout;
  std::set<std::string> seen;
  for (const FieldRequest& wanted : request) {
    if (!seen.insert(wanted.key).second) throw cxxrun::UsageError("feature '{}' is requested twice", wanted.key);
    const Feature& feature = features[find_feature(features, wanted.key)];
    const auto steps = static_cast<int64_t>(wanted.deltas.size());
    Field field{wanted.key, feature.dtype, feature.shape, bytes_per_frame(feature)};
    if (steps > 0) {
      field.shape.insert(field.shape.begin(), steps);
      field.bytes_per_row *= wanted.deltas.size();
    }
    layout.fields.push_back(std::move(field));
    if (steps > 0) layout.fields.push_back({wanted.key + "_is_pad", DType::kBool, {steps}, wanted.deltas.size()});
  }
  for (const char* key : kBookkeeping) layout.fields.push_back({key, DType::kInt64, {}, sizeof(int64_t)});
  return layout;
}

std::vector<int64_t> selected_episodes(std::vector<int64_t> wanted, int64_t total) {
  if (wanted.empty()) {
    wanted.resize(static_cast<size_t>(total));
    std::iota(wanted.begin(), wanted.end(), int64_t{0});
  }
  std::sort(wanted.begin(), wanted.end());
  for (const int64_t episode : wanted) {
    if (episode < 0 || episode >= total)
      throw cxxrun::UsageError("dataset.episodes: there is no episode {}, the dataset has 0 to {}", episode, total - 1);
  }
  const auto twice = std::adjacent_find(wanted.begin(), wanted.end());
  if (twice != wanted.end()) throw cxxrun::UsageError("dataset.episodes: episode {} is named twice", *twice);
  return wanted;
}

const Episode& episode_of(const std::vector<Episode>& episodes, int64_t sample) {
  return *std::prev(std::upper_bound(episodes.begin(), episodes.end(), sample,
                                     [](int64_t i, const Episode& e) { return i < e.begin; }));
}

FrameReader::FrameReader(const Dataset& dataset, const SampleRequest& request) : dataset_(dataset) {
  for (const FieldRequest& wanted : request) {
    const size_t feature = find_feature(dataset.features(), wanted.key);
    windows_.push_back({feature, bytes_per_frame(dataset.features()[feature]), wanted.deltas});
  }
}

void FrameReader::read(int64_t index, std::span<std::byte* const> destination) {
  if (index < 0 || index >= dataset_.size())
    throw cxxrun::Error("sample {} is outside the dataset of {} samples", index, dataset_.size());
  const Episode& episode = episode_of(dataset_.episodes(), index);
  auto out = destination.begin();
  for (const Window& window : windows_) {
    std::byte* values = *out++;
    if (window.deltas.empty()) {
      read_frame(window.feature, index, values);
      continue;
    }
    std::byte* is_pad = *out++;
    for (size_t t = 0; t < window.deltas.size(); ++t) {
      const int64_t wanted = index + window.deltas[t];
      const int64_t sample = std::clamp(wanted, episode.begin, episode.end - 1);
      read_frame(window.feature, sample, values + t * window.bytes);
      is_pad[t] = std::byte{sample != wanted};
    }
  }
  for (const int64_t key : keys(index)) std::memcpy(*out++, &key, sizeof key);
}

std::pair<int64_t, int64_t> FrameReader::decoding_group(int64_t index) {
  std::pair<int64_t, int64_t> group = {index, index + 1};
  for (const Window& window : windows_) {
    const auto [begin, end] = frame_decoding_group(window.feature, index);
    group = {std::min(group.first, begin), std::max(group.second, end)};
  }
  return group;
}

std::pair<int64_t, int64_t> FrameReader::frame_decoding_group(size_t, int64_t sample) { return {sample, sample + 1}; }

}  // namespace vla::data
