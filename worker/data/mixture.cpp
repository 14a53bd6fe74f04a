#include "worker/data/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/stats_merge.hpp"

namespace vla::data {
namespace {

std::string text_of(const Feature& feature) {
  constexpr const char* kNames[] = {"uint8", "bool", "int64", "float32"};
  return fmt::format("{} [{}]", kNames[static_cast<size_t>(feature.dtype)], fmt::join(feature.shape, ", "));
}

const Feature* find_feature(const Dataset& dataset, const std::string& key) {
  const auto& features = dataset.features();
  const auto found = std::find_if(features.begin(), features.end(), [&](const Feature& f) { return f.key == key; });
  return found == features.end() ? nullptr : &*found;
}

class Mixture : public Dataset {
 public:
  explicit Mixture(std::vector<MixtureEntry> entries);

  std::string description() const override { return description_; }
  int64_t size() const override { return episodes_.back().end; }
  double fps() const override { return parts_.front().dataset->fps(); }
  const std::vector<Feature>& features() const override { return features_; }
  const DatasetStats& stats() const override { return stats_.merged(); }
  const std::vector<Episode>& episodes() const override { return episodes_; }
  const std::vector<std::string>& tasks() const override { return tasks_; }
  int64_t broken_episodes() const override;
  SampleLayout layout(const SampleRequest& request) const override;
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override;

 private:
  friend class MixtureReader;
  struct Part {
    std::shared_ptr<const Dataset> dataset;
    int64_t first_sample = 0;
    std::vector<int64_t> tasks = {};  // its task_index -> ours
    std::string name = {};  // "part 2 of the mixture (LeRobot v3.0, /data/x)"
  };
  void choose_features();
  void add_samples(Part& part);

  std::vector<Part> parts_;
  std::vector<Feature> features_;
  std::vector<Episode> episodes_;
  std::vector<std::string> tasks_;
  StatsMerger stats_;
  std::string description_;
};

Mixture::Mixture(std::vector<MixtureEntry> entries) {
  for (MixtureEntry& entry : entries) {
    parts_.push_back({std::move(entry.dataset)});
    Part& part = parts_.back();
    part.name = fmt::format("part {} of the mixture ({})", parts_.size(), part.dataset->description());
    description_ += (description_.empty() ? "mixture of " : "; ") + part.dataset->description();
    if (std::abs(part.dataset->fps() - fps()) > 1e-6 * fps()) {
      cxxrun::log_warning("{} has {} frames a second, the first part {}: action chunks differ in duration", part.name,
                          part.dataset->fps(), fps());
    }
  }
  choose_features();
  for (Part& part : parts_) add_samples(part);
}

void Mixture::choose_features() {
  for (const Part& part : parts_) {
    for (const Feature& feature : part.dataset->features()) {
      std::string lacking;
      for (const Part& other : parts_) {
        const Feature* same = find_feature(*other.dataset, feature.key);
        if (same == nullptr) {
          if (lacking.empty()) lacking = other.name;
        } else if (same->shape != feature.shape || same->dtype != feature.dtype) {
          throw cxxrun::UsageError(
              "feature '{}' is {} in {}, but {} in {}; datasets can be mixed when the features they share are alike: "
              "convert one of them",
              feature.key, text_of(feature), part.name, text_of(*same), other.name);
        }
      }
      if (lacking.empty()) {
        if (&part == &parts_.front()) features_.push_back(feature);
      } else {
        cxxrun::log_info("feature '{}' of {} is not used: {} lacks it", feature.key, part.name, lacking);
      }
    }
  }
}

void Mixture::add_samples(Part& part) {
  part.first_sample = episodes_.empty() ? 0 : size();
  for (const Episode& episode : part.dataset->episodes()) {
    episodes_.push_back(
        {static_cast<int64_t>(episodes_.size()), part.first_sample + episode.begin, part.first_sample + episode.end});
  }
  for (const std::string& text : part.dataset->tasks()) {
    const auto known = std::find(tasks_.begin(), tasks_.end(), text);
    part.tasks.push_back(known - tasks_.begin());
    if (known == tasks_.end()) tasks_.push_back(text);
  }
  DatasetStats common;
  for (const auto& [key, stats] : part.dataset->stats()) {
    if (std::any_of(features_.begin(), features_.end(), [&](const Feature& f) { return f.key == key; }))
      common[key] = stats;
  }
  stats_.add(common, static_cast<double>(part.dataset->size()), part.name);
}

int64_t Mixture::broken_episodes() const {
  int64_t count = 0;
  for (const Part& part : parts_) count += part.dataset->broken_episodes();
  return count;
}

SampleLayout Mixture::layout(const SampleRequest& request) const {
  SampleLayout result = make_layout(features_, request);
  for (const Part& part : parts_) part.dataset->layout(request);  // checks the values
  return result;
}

class MixtureReader : public SampleReader {
 public:
  MixtureReader(const Mixture& mixture, const SampleRequest& request) : mixture_(mixture) {
    for (const auto& part : mixture.parts_) readers_.push_back(part.dataset->open_reader(request));
  }

  void read(int64_t index, std::span<std::byte* const> destination) override {
    const auto& part = part_of(index);
    try {
      reader_of(part).read(index - part.first_sample, destination);
    } catch (const cxxrun::DataError& error) {
      throw cxxrun::DataError("{}: {}", part.name, error.what());
    }
    // index, episode_index, frame_index, task_index end every sample; the frame stays.
    const auto keys = destination.last(4);
    int64_t task;
    std::memcpy(&task, keys[3], sizeof task);
    task = part.tasks.at(static_cast<size_t>(task));
    const int64_t episode = episode_of(mixture_.episodes_, index).index;
    std::memcpy(keys[0], &index, sizeof index);
    std::memcpy(keys[1], &episode, sizeof episode);
    std::memcpy(keys[3], &task, sizeof task);
  }

  std::pair<int64_t, int64_t> decoding_group(int64_t index) override {
    const auto& part = part_of(index);
    const auto [begin, end] = reader_of(part).decoding_group(index - part.first_sample);
    return {part.first_sample + begin, part.first_sample + end};
  }

 private:
  const Mixture::Part& part_of(int64_t index) const {
    if (index < 0 || index >= mixture_.size())
      throw cxxrun::Error("sample {} is outside the dataset of {} samples", index, mixture_.size());
    return *std::prev(std::upper_bound(mixture_.parts_.begin(), mixture_.parts_.end(), index,
                                       [](int64_t i, const auto& part) { return i < part.first_sample; }));
  }
  SampleReader& reader_of(const Mixture::Part& part) {
    return *readers_[static_cast<size_t>(&part - mixture_.parts_.data())];
  }

  const Mixture& mixture_;
  std::vector<std::unique_ptr<SampleReader>> readers_;  // by part
};

std::unique_ptr<SampleReader> Mixture::open_reader(const SampleRequest& request) const {
  return std::make_unique<MixtureReader>(*this, request);
}

}  // namespace

std::shared_ptr<const Dataset> mix_datasets(std::vector<MixtureEntry> entries) {
  if (entries.empty()) throw cxxrun::UsageError("a mixture of no datasets");
  if (entries.size() == 1) return entries.front().dataset;
  return std::make_shared<Mixture>(std::move(entries));
}

std::vector<SamplerPart> sampler_parts(const std::vector<MixtureEntry>& entries) {
  std::vector<SamplerPart> parts;
  for (const MixtureEntry& entry : entries) {
    const bool given = entry.weight != 0;
    if (entry.weight < 0 || !std::isfinite(entry.weight) || given != (entries.front().weight != 0)) {
      throw cxxrun::UsageError(
          "dataset weights must be positive, and given for all of the {} datasets or for none; {} has {}",
          entries.size(), entry.dataset->description(), entry.weight);
    }
    if (given) parts.push_back({entry.dataset->size(), entry.weight});
  }
  return parts;
}

}  // namespace vla::data
