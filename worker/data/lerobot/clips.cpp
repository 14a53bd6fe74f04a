#include "worker/data/lerobot/clips.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {

LeRobotClips::LeRobotClips(const LeRobotMetadata& meta, const std::vector<Episode>& episodes, const LeRobotRows& rows,
                           double tolerance_s)
    : meta_(meta), episodes_(episodes), clips_(meta.features.size()) {
  if (std::count(meta.storage.begin(), meta.storage.end(), Storage::kVideo) > 0) check_timestamps(rows, tolerance_s);
  for (size_t feature = 0; feature < meta.features.size(); ++feature) {
    if (meta.storage[feature] != Storage::kVideo) continue;
    const Feature& camera = meta.features[feature];
    std::map<std::string, size_t> known;
    for (const Episode& episode : episodes) {
      const VideoPart& part = meta.episodes[static_cast<size_t>(episode.index)].videos[feature];
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

LeRobotClips::Place LeRobotClips::find(size_t feature, int64_t sample) const {
  const Episode& episode = episode_of(episodes_, sample);
  const Clip& clip = clips_[feature][static_cast<size_t>(&episode - episodes_.data())];
  return {clip.video, videos_[clip.video].times->nearest(clip.from_timestamp +
                                                         static_cast<double>(sample - episode.begin) / meta_.fps)};
}

// Pictures are found by frame number, which is exact where float32 seconds are not; the two must mean the same.
void LeRobotClips::check_timestamps(const LeRobotRows& rows, double tolerance_s) const {
  const auto feature =
      std::find_if(meta_.features.begin(), meta_.features.end(), [](const Feature& f) { return f.key == "timestamp"; });
  if (feature == meta_.features.end() || feature->dtype != DType::kFloat32 || element_count(feature->shape) != 1)
    return;
  const std::byte* timestamps = rows.numbers[static_cast<size_t>(feature - meta_.features.begin())].values.data();
  for (const Episode& episode : episodes_) {
    for (int64_t sample = episode.begin; sample < episode.end; ++sample) {
      float timestamp;
      std::memcpy(&timestamp, timestamps + static_cast<size_t>(sample) * sizeof timestamp, sizeof timestamp);
      const double expected = static_cast<double>(sample - episode.begin) / meta_.fps;
      if (std::abs(timestamp - expected) <= tolerance_s + expected * std::numeric_limits<float>::epsilon()) continue;
      throw cxxrun::DataError(
          "{}: timestamp is {} s, but frame {} at {} frames/s is at {} s; the videos cannot be matched to the rows",
          rows.name(sample), timestamp, sample - episode.begin, meta_.fps, expected);
    }
  }
}

void LeRobotClips::check_clip(const Episode& episode, const Feature& camera, const Clip& clip,
                              double tolerance_s) const {
  const auto& [path, times] = videos_[clip.video];
  const int64_t length = episode.end - episode.begin;
  const auto seconds_of = [&](int64_t frame) { return clip.from_timestamp + static_cast<double>(frame) / meta_.fps; };
  for (int64_t frame = 0; frame < length; ++frame) {
    const double wanted = seconds_of(frame);
    const double nearest = times->seconds(times->nearest(wanted));
    if (std::abs(nearest - wanted) <= tolerance_s) continue;
    const std::string remedy = fmt::format("re-encode it, or leave episode {} out (dataset.episodes)", episode.index);
    if (wanted > times->seconds(times->count - 1)) {
      throw cxxrun::DataError(
          "{}: the file has {} frames, {} needed: episode {} frame {} is the first without a picture of '{}'; {}", path,
          times->count, std::llround(seconds_of(length - 1) * meta_.fps) + 1, episode.index, frame, camera.key, remedy);
    }
    throw cxxrun::DataError(
        "{}: episode {} frame {} is at {:.6f} s, the nearest picture of '{}' at {:.6f} s, which is more than the "
        "tolerance of {} s away; {}",
        path, episode.index, frame, wanted, camera.key, nearest, tolerance_s, remedy);
  }
}

}  // namespace vla::data
