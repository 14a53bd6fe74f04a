// What the meta/ folder of a LeRobot dataset, v3.0, v2.1 or v2.0, says: features, episodes, tasks, statistics. Reads and validates
// info.json and the tables that the version has; does not open data or videos. Throws DataError naming the file and key, row or
// line. Format: huggingface/lerobot, src/lerobot/datasets.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"
#include "worker/data/lerobot/path_pattern.hpp"

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
  std::string source;  // the file in meta/ that says so, for messages
};

struct LeRobotMetadata {
  explicit LeRobotMetadata(const std::string& root);

  std::string root;
  std::string version;  // "v3.0"
  double fps = 0;
  std::vector<Feature> features;  // in info.json's order, without the four that every sample ends with
  std::vector<Storage> storage;  // of each feature
  std::map<std::string, std::string> unsupported;  // feature key -> why it cannot be used
  std::vector<EpisodeRecord> episodes;
  std::vector<std::string> tasks;  // by task_index
  DatasetStats stats;
  std::string stats_path;  // where they come from, for messages

  std::string info_path() const { return root + "/meta/info.json"; }

 private:
  void read_info();
  void read_tables_v3();
  void read_episodes_v3();
  void read_tables_v2();
  void read_episodes_v2();
  void read_episode_stats();
  void check_totals(const char* table) const;
  // `numbers` must be 0 to n-1 in any order: a text belongs to its row's number, not to its position.
  void set_tasks(const std::vector<int64_t>& numbers, std::vector<std::string> texts, const std::string& path);

  int64_t total_episodes_ = 0, total_frames_ = 0, episodes_per_chunk_ = 1;
  PathPattern data_pattern_, video_pattern_;
};

}  // namespace vla::data
