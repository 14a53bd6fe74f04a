// What a LeRobot v3.0 folder's meta/ says: features, episodes, tasks, statistics. Reads and validates meta/info.json, stats.json,
// tasks.parquet and episodes/*/*.parquet; does not open data or videos. Paths made from its templates stay inside the folder.
// Throws DataError naming the file and key or row. Format: huggingface/lerobot, src/lerobot/datasets.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"

namespace vla::data {

enum class Storage : uint8_t { kColumn, kImage, kVideo };

// Where an episode's pictures of one camera are.
struct VideoPart {
  std::string path;
  double from_timestamp = 0;  // seconds, of the episode's first frame in the file
};

struct EpisodeRecord {
  int64_t length = 0;
  int64_t from = 0, to = 0;  // rows of the whole dataset, [from, to)
  std::string data_path;
  std::vector<VideoPart> videos;  // by number of the feature; empty for features that are no videos
  std::string source;  // the file of meta/episodes, for messages
};

struct LeRobotMetadata {
  explicit LeRobotMetadata(const std::string& root);

  std::string root;
  double fps = 0;
  std::vector<Feature> features;  // in info.json's order, without the four that every sample ends with
  std::vector<Storage> storage;  // of each feature
  std::map<std::string, std::string> unsupported;  // feature key -> why it cannot be used
  std::vector<EpisodeRecord> episodes;
  std::vector<std::string> tasks;  // by task_index
  DatasetStats stats;

  std::string info_path() const { return root + "/meta/info.json"; }
  std::string stats_path() const { return root + "/meta/stats.json"; }

 private:
  void read_info();
  void read_stats();
  void read_tasks();
  void read_episodes();
  std::string expand(const std::string& pattern, const std::string& video_key, int64_t chunk_index,
                     int64_t file_index) const;

  int64_t total_episodes_ = 0, total_frames_ = 0;
  std::string data_pattern_, video_pattern_;
};

}  // namespace vla::data
