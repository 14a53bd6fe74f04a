#include "worker/data/lerobot/lerobot_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <list>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/image_reader.hpp"
#include "worker/data/lerobot/metadata.hpp"
#include "worker/data/lerobot/parquet_file.hpp"
#include "worker/data/video_reader.hpp"

namespace vla::data {
namespace {

constexpr size_t kOpenVideos = 32;  // per reader; a decoder of a small camera holds a few MB

struct Video {
  std::string path;
  std::shared_ptr<const FrameTimes> times;
};

// Where the pictures of one camera in one episode are.
struct Clip {
  size_t video = 0;  // in videos_
  double from_timestamp = 0;
};

class LeRobotDataset : public Dataset {
 public:
  explicit LeRobotDataset(const DatasetSpec& spec);

  std::string description() const override { return "LeRobot v3.0, " + meta_.root; }
  int64_t size() const override { return static_cast<int64_t>(index_.size()); }
  double fps() const override { return meta_.fps; }
  const std::vector<Feature>& features() const override { return meta_.features; }
  const DatasetStats& stats() const override { return meta_.stats; }
  const std::vector<Episode>& episodes() const override { return episodes_; }
  const std::vector<std::string>& tasks() const override { return meta_.tasks; }
  SampleLayout layout(const SampleRequest& request) const override;
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override;

 private:
  friend class LeRobotReader;

  void read_rows(const std::string& path, std::span<const Episode> episodes);
  void check_rows(ParquetFile& file, const Episode& episode, int64_t file_first_row, const std::vector<int64_t>& index,
                  const std::vector<int64_t>& episode_index, const std::vector<int64_t>& frame_index) const;
  void find_videos(double tolerance_s);
  void check_timestamps(double tolerance_s) const;
  void check_clip(const Episode& episode, const Feature& camera, const Clip& clip, double tolerance_s) const;
  void check_finite(size_t feature) const;
  void check_stats(const Feature& feature) const;
  std::string row_name(int64_t sample) const;

  LeRobotMetadata meta_;
  std::vector<Episode> episodes_;
  std::vector<int64_t> index_, task_index_;  // by sample
  std::vector<NumericColumn> numbers_;  // by feature; empty for cameras
  std::vector<BinaryColumn> pictures_;  // by feature; empty for all but pictures in parquet
  std::vector<Video> videos_;
  std::vector<std::vector<Clip>> clips_;  // by feature, then by position in episodes_
};

LeRobotDataset::LeRobotDataset(const DatasetSpec& spec) : meta_(spec.root) {
  for (const Feature& feature : meta_.features) numbers_.push_back({feature.dtype, feature.shape, {}});
  pictures_.resize(meta_.features.size());
  int64_t begin = 0;
  for (const int64_t number : selected_episodes(spec.episodes, static_cast<int64_t>(meta_.episodes.size()))) {
    const int64_t end = begin + meta_.episodes[static_cast<size_t>(number)].length;
    episodes_.push_back({number, begin, end});
    begin = end;
  }
  const auto path_of = [&](const Episode& episode) -> const std::string& {
    return meta_.episodes[static_cast<size_t>(episode.index)].data_path;
  };
  for (auto first = episodes_.begin(); first != episodes_.end();) {
    const auto last = std::find_if(first, episodes_.end(),
                                   [&](const Episode& episode) { return path_of(episode) != path_of(*first); });
    read_rows(path_of(*first), {first, last});
    first = last;
  }
  find_videos(spec.tolerance_s);
}

// Reads the rows of `episodes`, which are in the file at `path`.
void LeRobotDataset::read_rows(const std::string& path, std::span<const Episode> episodes) {
  ParquetFile file(path);
  // The file's episodes, selected or not, stand together in meta/episodes.
  const auto elsewhere = [&](const EpisodeRecord& record) { return record.data_path != path; };
  const auto some = meta_.episodes.begin() + episodes.front().index;
  const auto last = std::find_if(some, meta_.episodes.end(), elsewhere) - 1;
  const auto first = std::find_if(std::make_reverse_iterator(some), meta_.episodes.rend(), elsewhere).base();
  const int64_t first_row = first->from, rows = last->to - first_row;
  if (rows != file.row_count()) {
    throw cxxrun::DataError(
        "{}: {} rows, but meta/episodes places {} rows in this file; the dataset is incomplete or mixed, copy it again",
        path, file.row_count(), rows);
  }
  const auto index = file.integers("index"), episode_index = file.integers("episode_index"),
             frame_index = file.integers("frame_index"), task_index = file.integers("task_index");
  const std::vector<int64_t>& starts = file.row_group_starts();
  for (const Episode& episode : episodes) {
    check_rows(file, episode, first_row, index, episode_index, frame_index);
    const EpisodeRecord& record = meta_.episodes[static_cast<size_t>(episode.index)];
    const int64_t begin = record.from - first_row, end = record.to - first_row;
    for (int64_t row = begin; row < end; ++row) {
      if (task_index[row] < 0 || task_index[row] >= static_cast<int64_t>(meta_.tasks.size())) {
        throw cxxrun::DataError("{}: column 'task_index', row {}: {} is not one of the {} tasks of meta/tasks.parquet",
                                path, row, task_index[row], meta_.tasks.size());
      }
    }
    index_.insert(index_.end(), index.begin() + begin, index.begin() + end);
    task_index_.insert(task_index_.end(), task_index.begin() + begin, task_index.begin() + end);
    for (auto group = std::upper_bound(starts.begin(), starts.end(), begin) - 1;
         group + 1 != starts.end() && *group < end; ++group) {
      const int64_t from = std::max(begin, *group), to = std::min(end, group[1]);
      const auto number = static_cast<int>(group - starts.begin());
      for (size_t i = 0; i < meta_.features.size(); ++i) {
        if (from >= to || meta_.storage[i] == Storage::kVideo) continue;
        if (meta_.storage[i] == Storage::kImage) {
          file.read(meta_.features[i].key, number, from, to, pictures_[i]);
        } else {
          file.read(meta_.features[i].key, number, from, to, numbers_[i]);
        }
      }
    }
  }
}

void LeRobotDataset::check_rows(ParquetFile& file, const Episode& episode, int64_t file_first_row,
                                const std::vector<int64_t>& index, const std::vector<int64_t>& episode_index,
                                const std::vector<int64_t>& frame_index) const {
  const EpisodeRecord& record = meta_.episodes[static_cast<size_t>(episode.index)];
  for (int64_t frame = 0; frame < record.length; ++frame) {
    const int64_t row = record.from - file_first_row + frame;
    if (row < 0 || row >= file.row_count()) {
      throw cxxrun::DataError("{}: episode {}: rows {} to {} are not in {}", record.source, episode.index, record.from,
                              record.to - 1, file.path());
    }
    const auto check = [&](const char* column, int64_t value, int64_t expected) {
      if (value != expected) {
        throw cxxrun::DataError(
            "{}: column '{}', row {}: {}, but {} says {} (episode {}, frame {}); recompute meta/episodes from the "
            "rows, or convert "
            "the dataset again",
            file.path(), column, row, value, record.source, expected, episode.index, frame);
      }
    };
    check("episode_index", episode_index[row], episode.index);
    check("frame_index", frame_index[row], frame);
    check("index", index[row], record.from + frame);
  }
}

void LeRobotDataset::find_videos(double tolerance_s) {
  clips_.resize(meta_.features.size());
  if (std::count(meta_.storage.begin(), meta_.storage.end(), Storage::kVideo) > 0) check_timestamps(tolerance_s);
  for (size_t feature = 0; feature < meta_.features.size(); ++feature) {
    if (meta_.storage[feature] != Storage::kVideo) continue;
    const Feature& camera = meta_.features[feature];
    std::map<std::string, size_t> known;
    for (const Episode& episode : episodes_) {
      const VideoPart& part = meta_.episodes[static_cast<size_t>(episode.index)].videos[feature];
      const auto [entry, is_new] = known.emplace(part.path, videos_.size());
      if (is_new) {
        const VideoReader reader(part.path);
        if (reader.height() != camera.shape[0] || reader.width() != camera.shape[1]) {
          throw cxxrun::DataError("{}: {}, shown {}x{}, but meta/info.json declares '{}' as {}x{}", part.path,
                                  reader.description(), reader.height(), reader.width(), camera.key, camera.shape[0],
                                  camera.shape[1]);
        }
        videos_.push_back({part.path, reader.times()});
      }
      clips_[feature].push_back({entry->second, part.from_timestamp});
      check_clip(episode, camera, clips_[feature].back(), tolerance_s);
    }
  }
}

// Pictures are found by frame number, which is exact where float32 seconds are not; the two must mean the same.
void LeRobotDataset::check_timestamps(double tolerance_s) const {
  const auto feature =
      std::find_if(meta_.features.begin(), meta_.features.end(), [](const Feature& f) { return f.key == "timestamp"; });
  if (feature == meta_.features.end() || feature->dtype != DType::kFloat32 || element_count(feature->shape) != 1)
    return;
  const NumericColumn& column = numbers_[static_cast<size_t>(feature - meta_.features.begin())];
  for (const Episode& episode : episodes_) {
    for (int64_t sample = episode.begin; sample < episode.end; ++sample) {
      float timestamp;
      std::memcpy(&timestamp, column.values.data() + static_cast<size_t>(sample) * sizeof timestamp, sizeof timestamp);
      const double expected = static_cast<double>(sample - episode.begin) / meta_.fps;
      if (std::abs(timestamp - expected) <= tolerance_s + expected * std::numeric_limits<float>::epsilon()) continue;
      throw cxxrun::DataError(
          "{}: timestamp is {} s, but frame {} at {} frames/s is at {} s; the videos cannot be matched to the rows",
          row_name(sample), timestamp, sample - episode.begin, meta_.fps, expected);
    }
  }
}

// Every row must have a picture within the tolerance, so that a training does not find out in the middle.
void LeRobotDataset::check_clip(const Episode& episode, const Feature& camera, const Clip& clip,
                                double tolerance_s) const {
  const Video& video = videos_[clip.video];
  const int64_t length = episode.end - episode.begin;
  for (int64_t frame = 0; frame < length; ++frame) {
    const double wanted = clip.from_timestamp + static_cast<double>(frame) / meta_.fps;
    const int64_t found = video.times->nearest(wanted);
    const double difference = std::abs(video.times->seconds(found) - wanted);
    if (difference <= tolerance_s) continue;
    const std::string remedy = fmt::format("re-encode it, or leave episode {} out (dataset.episodes)", episode.index);
    if (found == video.times->count - 1 && wanted > video.times->seconds(found)) {
      const auto needed =
          std::llround((clip.from_timestamp + static_cast<double>(length - 1) / meta_.fps) * meta_.fps) + 1;
      throw cxxrun::DataError(
          "{}: the file has {} frames, {} needed: episode {} frame {} is the first without a picture of '{}'; {}",
          video.path, video.times->count, needed, episode.index, frame, camera.key, remedy);
    }
    throw cxxrun::DataError(
        "{}: episode {} frame {} is at {:.6f} s, the nearest picture of '{}' at {:.6f} s, which is more than the "
        "tolerance of {} s; {}",
        video.path, episode.index, frame, wanted, camera.key, video.times->seconds(found), tolerance_s, remedy);
  }
}

std::string LeRobotDataset::row_name(int64_t sample) const {
  const Episode& episode = episode_of(episodes_, sample);
  return fmt::format("{}: episode {} frame {} (row {} of the dataset)",
                     meta_.episodes[static_cast<size_t>(episode.index)].data_path, episode.index,
                     sample - episode.begin, index_[static_cast<size_t>(sample)]);
}

void LeRobotDataset::check_finite(size_t feature) const {
  const NumericColumn& column = numbers_[feature];
  if (column.dtype != DType::kFloat32) return;
  const size_t per_row = bytes_per_frame(meta_.features[feature]);
  for (size_t at = 0; at < column.values.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, column.values.data() + at, sizeof value);
    if (std::isfinite(value)) continue;
    throw cxxrun::DataError("{}: '{}'[{}] is {}; repair the row, or leave the episode out (dataset.episodes)",
                            row_name(static_cast<int64_t>(at / per_row)), meta_.features[feature].key,
                            at % per_row / sizeof value, value);
  }
}

void LeRobotDataset::check_stats(const Feature& feature) const {
  const auto of_feature = meta_.stats.find(feature.key);
  if (of_feature == meta_.stats.end()) return;
  const int64_t expected = feature.type == FeatureType::kVisual ? 3 : element_count(feature.shape);
  for (const auto& [stat, tensor] : of_feature->second) {
    if (stat == "count") continue;
    if (static_cast<int64_t>(tensor.values.size()) != expected) {
      throw cxxrun::DataError("{}: '{}' of '{}' has {} values, expected {}; recompute the statistics",
                              meta_.stats_path(), stat, feature.key, tensor.values.size(), expected);
    }
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      if (std::isfinite(tensor.values[i])) continue;
      throw cxxrun::DataError("{}: '{}' of '{}' is not a finite number at position {}; recompute the statistics",
                              meta_.stats_path(), stat, feature.key, i);
    }
  }
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
    check_finite(i);
    check_stats(feature);
  }
  return result;
}

class LeRobotReader : public FrameReader {
 public:
  LeRobotReader(const LeRobotDataset& dataset, const SampleRequest& request)
      : FrameReader(dataset, request), dataset_(dataset) {}

 private:
  void read_frame(size_t feature, int64_t sample, std::byte* out) override;
  std::array<int64_t, 4> keys(int64_t sample) override;
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
      std::memcpy(out, dataset_.numbers_[feature].values.data() + row * bytes, bytes);
      return;
    }
    case Storage::kImage: {
      const BinaryColumn& column = dataset_.pictures_[feature];
      const size_t begin = row == 0 ? 0 : column.ends[row - 1];
      const std::span<const std::byte> file(column.bytes.data() + begin, column.ends[row] - begin);
      images_.read(file, described.shape[0], described.shape[1], out,
                   fmt::format("{}: '{}'", dataset_.row_name(sample), described.key));
      return;
    }
    case Storage::kVideo: {
      const Episode& episode = episode_of(dataset_.episodes(), sample);
      const Clip& clip = dataset_.clips_[feature][static_cast<size_t>(&episode - dataset_.episodes().data())];
      VideoReader& video = open_video(clip.video);
      video.read(
          video.times()->nearest(clip.from_timestamp + static_cast<double>(sample - episode.begin) / dataset_.fps()),
          out);
    }
  }
}

VideoReader& LeRobotReader::open_video(size_t video) {
  const auto found =
      std::find_if(videos_.begin(), videos_.end(), [&](const auto& open) { return open.first == video; });
  if (found != videos_.end()) {
    videos_.splice(videos_.begin(), videos_, found);
  } else {
    if (videos_.size() == kOpenVideos) videos_.pop_back();
    const Video& described = dataset_.videos_[video];
    videos_.emplace_front(std::piecewise_construct, std::forward_as_tuple(video),
                          std::forward_as_tuple(described.path, described.times));
  }
  return videos_.front().second;
}

std::array<int64_t, 4> LeRobotReader::keys(int64_t sample) {
  const Episode& episode = episode_of(dataset_.episodes(), sample);
  return {dataset_.index_[static_cast<size_t>(sample)], episode.index, sample - episode.begin,
          dataset_.task_index_[static_cast<size_t>(sample)]};
}

std::unique_ptr<SampleReader> LeRobotDataset::open_reader(const SampleRequest& request) const {
  return std::make_unique<LeRobotReader>(*this, request);
}

}  // namespace

bool is_lerobot(const std::string& root) { return std::filesystem::exists(root + "/meta/info.json"); }

std::shared_ptr<const Dataset> open_lerobot(const DatasetSpec& spec) { return std::make_shared<LeRobotDataset>(spec); }

}  // namespace vla::data
