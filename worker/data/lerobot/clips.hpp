// Where the picture of each sample is: which video file, which frame. Opens every video of the selected episodes once and checks that
// each row has its picture, so that a training does not find out in the middle. Throws DataError naming the file and the frame.
// Immutable after construction.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"
#include "worker/data/lerobot/metadata.hpp"
#include "worker/data/lerobot/rows.hpp"
#include "worker/data/video_reader.hpp"

namespace vla::data {

struct Video {
  std::string path;
  std::shared_ptr<const FrameTimes> times;
};

class LeRobotClips {
 public:
  struct Place {
    size_t video = 0;  // in videos()
    int64_t frame = 0;
  };

  LeRobotClips(const LeRobotMetadata& meta, const std::vector<Episode>& episodes, const LeRobotRows& rows,
               double tolerance_s);

  const std::vector<Video>& videos() const { return videos_; }
  Place find(size_t feature, int64_t sample) const;

 private:
  struct Clip {
    size_t video = 0;
    double from_timestamp = 0;  // seconds
  };
  void check_timestamps(const LeRobotRows& rows, double tolerance_s) const;
  void check_clip(const Episode& episode, const Feature& camera, const Clip& clip, double tolerance_s) const;

  const LeRobotMetadata& meta_;
  const std::vector<Episode>& episodes_;
  std::vector<Video> videos_;
  std::vector<std::vector<Clip>> clips_;  // by feature, then by position in episodes_
};

}  // namespace vla::data
