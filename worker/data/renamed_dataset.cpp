#include "worker/data/renamed_dataset.hpp"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "common/registry.hpp"

namespace vla::data {
namespace {

using cxxrun::UsageError;

constexpr std::string_view kPadding = "_is_pad";

std::vector<std::string_view> keys_of(const Dataset& dataset) {
  std::vector<std::string_view> keys;
  for (const Feature& feature : dataset.features()) keys.push_back(feature.key);
  return keys;
}

class RenamedDataset : public Dataset {
 public:
  RenamedDataset(std::shared_ptr<const Dataset> dataset, const std::vector<std::string>& rename_map) : dataset_(std::move(dataset)) {
    const auto keys = keys_of(*dataset_);
    for (const std::string& entry : rename_map) {
      const size_t equals = entry.find('=');
      if (equals == std::string::npos || equals == 0 || equals + 1 == entry.size()) {
        throw UsageError("rename_map: '{}' is not dataset_key=policy_key", entry);
      }
      const std::string key = entry.substr(0, equals);
      if (std::ranges::find(keys, key) == keys.end()) {
        throw UsageError("rename_map: the dataset has no feature '{}' (it has: {}){}", key, fmt::join(keys, ", "), cxxrun::did_you_mean(key, keys));
      }
      if (!new_names_.emplace(key, entry.substr(equals + 1)).second) throw UsageError("rename_map: '{}' is renamed twice", key);
    }
    for (Feature feature : dataset_->features()) {
      const std::string key = feature.key;
      feature.key = new_name(key);
      if (!old_names_.emplace(feature.key, key).second) {
        throw UsageError("rename_map: '{}' and '{}' would both be '{}'", old_names_[feature.key], key, feature.key);
      }
      features_.push_back(std::move(feature));
    }
    for (const auto& [key, of_feature] : dataset_->stats()) stats_[new_name(key)] = of_feature;
  }

  std::string description() const override { return dataset_->description(); }
  int64_t size() const override { return dataset_->size(); }
  double fps() const override { return dataset_->fps(); }
  const std::vector<Feature>& features() const override { return features_; }
  const DatasetStats& stats() const override { return stats_; }
  const std::vector<Episode>& episodes() const override { return dataset_->episodes(); }
  const std::vector<std::string>& tasks() const override { return dataset_->tasks(); }
  int64_t broken_episodes() const override { return dataset_->broken_episodes(); }

  SampleLayout layout(const SampleRequest& request) const override {
    const SampleRequest inner = translated(request);
    SampleLayout layout = dataset_->layout(inner);
    for (Field& field : layout.fields) {
      const bool is_padding = field.key.ends_with(kPadding) && std::ranges::find(inner, field.key, &FieldRequest::key) == inner.end();
      const std::string key = is_padding ? field.key.substr(0, field.key.size() - kPadding.size()) : field.key;
      field.key = new_name(key) + std::string(is_padding ? kPadding : "");
    }
    return layout;
  }

  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override { return dataset_->open_reader(translated(request)); }

 private:
  std::string new_name(const std::string& key) const {
    const auto found = new_names_.find(key);
    return found == new_names_.end() ? key : found->second;
  }

  // A key that the policy knows under no name goes through: the dataset's error names the nearest.
  SampleRequest translated(SampleRequest request) const {
    for (FieldRequest& field : request) {
      const auto found = old_names_.find(field.key);
      if (found != old_names_.end()) field.key = found->second;
    }
    return request;
  }

  std::shared_ptr<const Dataset> dataset_;
  std::map<std::string, std::string> new_names_;  // of the renamed features, by the dataset's key
  std::map<std::string, std::string> old_names_;  // of all features, by the policy's key
  std::vector<Feature> features_;
  DatasetStats stats_;
};

}  // namespace

std::shared_ptr<const Dataset> rename_features(std::shared_ptr<const Dataset> dataset, const std::vector<std::string>& rename_map) {
  if (rename_map.empty()) return dataset;
  return std::make_shared<RenamedDataset>(std::move(dataset), rename_map);
}

void require_features(const Dataset& dataset, const std::vector<std::string>& wanted) {
  auto free = keys_of(dataset);
  std::vector<std::string> missing;
  for (const std::string& key : wanted) {
    if (std::erase(free, key) == 0) missing.push_back(key);
  }
  if (missing.empty()) return;
  const auto is_alike = [](std::string_view a, std::string_view b) {
    const bool same_kind = (a.find("image") == a.npos) == (b.find("image") == b.npos);
    return same_kind && a.substr(0, a.find('.')) == b.substr(0, b.find('.'));
  };
  std::vector<std::string> pairs;
  for (const std::string& key : missing) {
    const auto other = std::ranges::find_if(free, [&](std::string_view name) { return is_alike(name, key); });
    if (other == free.end()) continue;
    pairs.push_back(fmt::format("{}={}", *other, key));
    free.erase(other);
  }
  throw UsageError("the policy wants features that the dataset lacks: {} (the dataset has: {}){}", fmt::join(missing, ", "),
                   fmt::join(keys_of(dataset), ", "),
                   pairs.empty() ? "" : fmt::format("; if it is only their names, set --policy.rename_map='[{}]'", fmt::join(pairs, ", ")));
}

}  // namespace vla::data
