#include "worker/data/lerobot/lerobot_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <list>
#include <map>
#include <span>

#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/image_reader.hpp"
#include "worker/data/lerobot/clips.hpp"
#include "worker/data/lerobot/metadata.hpp"
#include "worker/data/lerobot/rows.hpp"

namespace vla::data {
namespace {

constexpr size_t kOpenVideos = 32;  // per reader; a decoder of a small camera holds a few MB

std::vector<Episode> make_episodes(const LeRobotMetadata& meta, std::span<const int64_t> numbers) {
  std::vector<Episode> episodes;
  int64_t begin = 0;
  for (const int64_t number : numbers) {
    episodes.push_back({number, begin, begin + meta.episodes[static_cast<size_t>(number)].length});
    begin = episodes.back().end;
  }
  return episodes;
}

// The selected episodes, opened. Refers to `meta`.
struct Contents {
  Contents(const LeRobotMetadata& meta, std::span<const int64_t> numbers, double tolerance_s)
      : episodes(make_episodes(meta, numbers)), rows(meta, episodes), clips(meta, episodes, rows, tolerance_s) {}

  const std::vector<Episode> episodes;
  const LeRobotRows rows;
  const LeRobotClips clips;
};

// The episodes among `numbers` that cannot be opened, or hold values that are not finite where a policy may look, and why. Halves them
// until the broken ones stand alone, so that a few among many are found without opening each by itself.
void find_broken(const LeRobotMetadata& meta, std::span<const int64_t> numbers, double tolerance_s,
                 std::map<int64_t, std::string>& broken) {
  try {
    const Contents contents(meta, numbers, tolerance_s);
    for (size_t i = 0; i < meta.features.size(); ++i) {
      if (meta.features[i].type != FeatureType::kOther) contents.rows.check_finite(i);
    }
  } catch (const cxxrun::DataError& error) {
    const size_t half = numbers.size() / 2;
    if (half == 0) {
      broken.emplace(numbers[0], error.what());
    } else {
      find_broken(meta, numbers.first(half), tolerance_s, broken);
      find_broken(meta, numbers.subspan(half), tolerance_s, broken);
    }
  }
}

class LeRobotDataset : public Dataset {
 public:
  explicit LeRobotDataset(const DatasetSpec& spec) : meta_(spec.root) {
    std::vector<int64_t> numbers = selected_episodes(spec.episodes, static_cast<int64_t>(meta_.episodes.size()));
    if (spec.skip_broken) leave_out_broken(numbers, spec.tolerance_s);
    contents_ = std::make_unique<const Contents>(meta_, numbers, spec.tolerance_s);
  }

  std::string description() const override { return "LeRobot " + meta_.version + ", " + meta_.root; }
  int64_t size() const override { return episodes().back().end; }
  double fps() const override { return meta_.fps; }
  const std::vector<Feature>& features() const override { return meta_.features; }
  const DatasetStats& stats() const override { return meta_.stats; }
  const std::vector<Episode>& episodes() const override { return contents_->episodes; }
  const std::vector<std::string>& tasks() const override { return meta_.tasks; }
  int64_t broken_episodes() const override { return broken_episodes_; }
  SampleLayout layout(const SampleRequest& request) const override;
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override;

 private:
  friend class LeRobotReader;
  void leave_out_broken(std::vector<int64_t>& numbers, double tolerance_s);
  void check_stats(const Feature& feature) const;

  const LeRobotMetadata meta_;
  std::unique_ptr<const Contents> contents_;
  int64_t broken_episodes_ = 0;
};

void LeRobotDataset::leave_out_broken(std::vector<int64_t>& numbers, double tolerance_s) {
  std::map<int64_t, std::string> broken;
  find_broken(meta_, numbers, tolerance_s, broken);
  if (broken.size() == numbers.size()) {
    throw cxxrun::DataError("{}: all {} selected episodes are broken, the first: {}", description(), numbers.size(),
                            broken.begin()->second);
  }
  for (const auto& [number, reason] : broken)
    cxxrun::log_warning("{}: episode {} is left out: {}", description(), number, reason);
  std::erase_if(numbers, [&](int64_t number) { return broken.contains(number); });
  broken_episodes_ = static_cast<int64_t>(broken.size());
}

SampleLayout LeRobotDataset::layout(const SampleRequest& request) const {
  for (const FieldRequest& wanted : request) {
    const auto reason = meta_.unsupported.find(wanted.key);
    if (reason != meta_.unsupported.end())
      throw cxxrun::UsageError("feature '{}' cannot be used: {}", wanted.key, reason->second);
  }
  SampleLayout result = make_layout(meta_.features, request);
  for (size_t i = 0; i < meta_.features.size(); ++i) {
    const Feature& feature = meta_.features[i];
    if (std::none_of(request.begin(), request.end(),
                     [&](const FieldRequest& wanted) { return wanted.key == feature.key; }))
      continue;
    contents_->rows.check_finite(i);
    check_stats(feature);
  }
  return result;
}

void LeRobotDataset::check_stats(const Feature& feature) const {
  const auto of_feature = meta_.stats.find(feature.key);
  if (of_feature == meta_.stats.end()) return;
  const int64_t expected = feature.type == FeatureType::kVisual ? 3 : element_count(feature.shape);
  for (const auto& [stat, tensor] : of_feature->second) {
    if (stat == "count") continue;
    if (static_cast<int64_t>(tensor.values.size()) != expected) {
      throw cxxrun::DataError("{}: '{}' of '{}' has {} values, expected {}; recompute the statistics", meta_.stats_path,
                              stat, feature.key, tensor.values.size(), expected);
    }
    const auto bad =
        std::find_if(tensor.values.begin(), tensor.values.end(), [](double value) { return !std::isfinite(value); });
    if (bad == tensor.values.end()) continue;
    throw cxxrun::DataError("{}: '{}' of '{}' is not a finite number at position {}; recompute the statistics",
                            meta_.stats_path, stat, feature.key, bad - tensor.values.begin());
  }
}

class LeRobotReader : public FrameReader {
 public:
  LeRobotReader(const LeRobotDataset& dataset, const SampleRequest& request)
      : FrameReader(dataset, request), dataset_(dataset) {}

 private:
  void read_frame(size_t feature, int64_t sample, std::byte* out) override;
  std::array<int64_t, 4> keys(int64_t sample) override;
  std::pair<int64_t, int64_t> frame_decoding_group(size_t feature, int64_t sample) override;
  VideoReader& open_video(size_t video);

  const LeRobotDataset& dataset_;
  ImageReader images_;
  std::list<std::pair<size_t, VideoReader>> videos_;  // most recently used first
};

void LeRobotReader::read_frame(size_t feature, int64_t sample, std::byte* out) {
  const Feature& described = dataset_.features()[feature];
  const auto row = static_cast<size_t>(sample);
  switch (dataset_.meta_.storage[feature]) {
    case Storage::kColumn: {
      const size_t bytes = bytes_per_frame(described);
      std::memcpy(out, dataset_.contents_->rows.numbers[feature].values.data() + row * bytes, bytes);
      return;
    }
    case Storage::kImage:
      images_.read(dataset_.contents_->rows.pictures[feature].row(row), described.shape[0], described.shape[1], out,
                   fmt::format("{}: '{}'", dataset_.contents_->rows.name(sample), described.key));
      return;
    case Storage::kVideo: {
      const auto [video, frame] = dataset_.contents_->clips.find(feature, sample);
      open_video(video).read(frame, out);
    }
  }
}

std::pair<int64_t, int64_t> LeRobotReader::frame_decoding_group(size_t feature, int64_t sample) {
  const std::pair<int64_t, int64_t> alone = {sample, sample + 1};
  if (dataset_.meta_.storage[feature] != Storage::kVideo) return alone;
  const auto [video, frame] = dataset_.contents_->clips.find(feature, sample);
  const auto [begin, end] = open_video(video).decoding_group(frame);
  const Episode& episode = episode_of(dataset_.episodes(), sample);
  const int64_t first = std::max(episode.begin, sample - (frame - begin));
  const int64_t last = std::min(episode.end - 1, sample + (end - 1 - frame));
  // A video with more frames than rows has the group's ends nearer to the sample.
  const bool is_inside = dataset_.contents_->clips.find(feature, first).frame >= begin && dataset_.contents_->clips.find(feature, last).frame < end;
  return is_inside ? std::pair(first, last + 1) : alone;
}

VideoReader& LeRobotReader::open_video(size_t video) {
  const auto found =
      std::find_if(videos_.begin(), videos_.end(), [&](const auto& open) { return open.first == video; });
  if (found != videos_.end()) {
    videos_.splice(videos_.begin(), videos_, found);
  } else {
    if (videos_.size() == kOpenVideos) videos_.pop_back();
    const auto& [path, times] = dataset_.contents_->clips.videos()[video];
    videos_.emplace_front(std::piecewise_construct, std::forward_as_tuple(video), std::forward_as_tuple(path, times));
  }
  return videos_.front().second;
}

std::array<int64_t, 4> LeRobotReader::keys(int64_t sample) {
  const Episode& episode = episode_of(dataset_.episodes(), sample);
  const auto row = static_cast<size_t>(sample);
  return {dataset_.contents_->rows.index[row], episode.index, sample - episode.begin,
          dataset_.contents_->rows.task_index[row]};
}

std::unique_ptr<SampleReader> LeRobotDataset::open_reader(const SampleRequest& request) const {
  return std::make_unique<LeRobotReader>(*this, request);
}

}  // namespace

bool is_lerobot(const std::string& root) { return std::filesystem::exists(root + "/meta/info.json"); }

std::shared_ptr<const Dataset> open_lerobot(const DatasetSpec& spec) { return std::make_shared<LeRobotDataset>(spec); }

}  // namespace vla::data
