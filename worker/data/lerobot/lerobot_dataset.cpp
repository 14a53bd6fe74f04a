#include "worker/data/lerobot/lerobot_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <list>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/image_reader.hpp"
#include "worker/data/lerobot/clips.hpp"
#include "worker/data/lerobot/metadata.hpp"
#include "worker/data/lerobot/rows.hpp"

namespace vla::data {
namespace {

constexpr size_t kOpenVideos = 32;  // per reader; a decoder of a small camera holds a few MB

std::vector<Episode> select_episodes(const LeRobotMetadata& meta, const std::vector<int64_t>& wanted) {
  std::vector<Episode> episodes;
  int64_t begin = 0;
  for (const int64_t number : selected_episodes(wanted, static_cast<int64_t>(meta.episodes.size()))) {
    episodes.push_back({number, begin, begin + meta.episodes[static_cast<size_t>(number)].length});
    begin = episodes.back().end;
  }
  return episodes;
}

class LeRobotDataset : public Dataset {
 public:
  explicit LeRobotDataset(const DatasetSpec& spec)
      : meta_(spec.root),
        episodes_(select_episodes(meta_, spec.episodes)),
        rows_(meta_, episodes_),
        clips_(meta_, episodes_, rows_, spec.tolerance_s) {}

  std::string description() const override { return "LeRobot " + meta_.version + ", " + meta_.root; }
  int64_t size() const override { return episodes_.back().end; }
  double fps() const override { return meta_.fps; }
  const std::vector<Feature>& features() const override { return meta_.features; }
  const DatasetStats& stats() const override { return meta_.stats; }
  const std::vector<Episode>& episodes() const override { return episodes_; }
  const std::vector<std::string>& tasks() const override { return meta_.tasks; }
  SampleLayout layout(const SampleRequest& request) const override;
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override;

 private:
  friend class LeRobotReader;
  void check_stats(const Feature& feature) const;

  const LeRobotMetadata meta_;
  const std::vector<Episode> episodes_;
  const LeRobotRows rows_;
  const LeRobotClips clips_;
};

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
    rows_.check_finite(i);
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
      throw cxxrun::DataError("{}: '{}' of '{}' has {} values, expected {}; recompute the statistics",
                              meta_.stats_path, stat, feature.key, tensor.values.size(), expected);
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
      std::memcpy(out, dataset_.rows_.numbers[feature].values.data() + row * bytes, bytes);
      return;
    }
    case Storage::kImage:
      images_.read(dataset_.rows_.pictures[feature].row(row), described.shape[0], described.shape[1], out,
                   fmt::format("{}: '{}'", dataset_.rows_.name(sample), described.key));
      return;
    case Storage::kVideo: {
      const auto [video, frame] = dataset_.clips_.find(feature, sample);
      open_video(video).read(frame, out);
    }
  }
}

std::pair<int64_t, int64_t> LeRobotReader::frame_decoding_group(size_t feature, int64_t sample) {
  const std::pair<int64_t, int64_t> alone = {sample, sample + 1};
  if (dataset_.meta_.storage[feature] != Storage::kVideo) return alone;
  const auto [video, frame] = dataset_.clips_.find(feature, sample);
  const auto [begin, end] = open_video(video).decoding_group(frame);
  const Episode& episode = episode_of(dataset_.episodes(), sample);
  const int64_t first = std::max(episode.begin, sample - (frame - begin));
  const int64_t last = std::min(episode.end - 1, sample + (end - 1 - frame));
  // A video with more frames than rows has the group's ends nearer to the sample.
  const bool is_inside = dataset_.clips_.find(feature, first).frame >= begin && dataset_.clips_.find(feature, last).frame < end;
  return is_inside ? std::pair(first, last + 1) : alone;
}

VideoReader& LeRobotReader::open_video(size_t video) {
  const auto found =
      std::find_if(videos_.begin(), videos_.end(), [&](const auto& open) { return open.first == video; });
  if (found != videos_.end()) {
    videos_.splice(videos_.begin(), videos_, found);
  } else {
    if (videos_.size() == kOpenVideos) videos_.pop_back();
    const auto& [path, times] = dataset_.clips_.videos()[video];
    videos_.emplace_front(std::piecewise_construct, std::forward_as_tuple(video), std::forward_as_tuple(path, times));
  }
  return videos_.front().second;
}

std::array<int64_t, 4> LeRobotReader::keys(int64_t sample) {
  const Episode& episode = episode_of(dataset_.episodes(), sample);
  const auto row = static_cast<size_t>(sample);
  return {dataset_.rows_.index[row], episode.index, sample - episode.begin, dataset_.rows_.task_index[row]};
}

std::unique_ptr<SampleReader> LeRobotDataset::open_reader(const SampleRequest& request) const {
  return std::make_unique<LeRobotReader>(*this, request);
}

}  // namespace

bool is_lerobot(const std::string& root) { return std::filesystem::exists(root + "/meta/info.json"); }

std::shared_ptr<const Dataset> open_lerobot(const DatasetSpec& spec) { return std::make_shared<LeRobotDataset>(spec); }

}  // namespace vla::data
