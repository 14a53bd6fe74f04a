// The tables of LeRobot v3: meta/stats.json, tasks.parquet and episodes/*/*.parquet.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "common/error.hpp"
#include "worker/data/json_file.hpp"
#include "worker/data/lerobot/metadata.hpp"
#include "worker/data/lerobot/parquet_file.hpp"

namespace vla::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".parquet") paths.push_back(it->path().string());
  }
  if (error) throw cxxrun::DataError("cannot read folder {}: {}", folder, error.message());
  if (paths.empty())
    throw cxxrun::DataError("{}: no parquet file in this folder; the dataset is incomplete, copy it again", folder);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

void LeRobotMetadata::read_tables_v3() {
  stats = to_stats(read_json(stats_path), stats_path);
  ParquetFile file(root + "/meta/tasks.parquet");
  // The text is pandas' index, which may be unnamed.
  set_tasks(file.integers("task_index"),
            file.strings(file.has_column("__index_level_0__") ? "__index_level_0__" : "task"), file.path());
  read_episodes_v3();
  check_totals("episodes");
}

void LeRobotMetadata::read_episodes_v3() {
  int64_t frames = 0;
  for (const std::string& path : files_of(root + "/meta/episodes")) {
    ParquetFile file(path);
    const auto number = file.integers("episode_index"), length = file.integers("length"),
               from = file.integers("dataset_from_index"), to = file.integers("dataset_to_index"),
               data_chunk = file.integers("data/chunk_index"), data_file = file.integers("data/file_index");
    const size_t first = episodes.size();
    for (size_t row = 0; row < number.size(); ++row) {
      const auto expected = static_cast<int64_t>(episodes.size());
      if (number[row] != expected)
        throw cxxrun::DataError("{}: row {}: episode_index is {}, expected {}", path, row, number[row], expected);
      if (length[row] < 1 || length[row] > total_frames_ || from[row] < 0 || to[row] > total_frames_ ||
          to[row] - from[row] != length[row]) {
        throw cxxrun::DataError(
            "{}: episode {}: length {} does not fit dataset_from_index {} and dataset_to_index {} of {} frames", path,
            expected, length[row], from[row], to[row], total_frames_);
      }
      if (from[row] != frames) {
        throw cxxrun::DataError(
            "{}: episode {}: dataset_from_index is {}, but the episodes before it have {} rows, so its real first row "
            "is {}; recompute the bounds from the lengths, or convert the dataset again",
            path, expected, from[row], frames, frames);
      }
      frames += length[row];
      episodes.push_back({length[row], from[row], to[row],
                          data_pattern_.expand("", {{"chunk_index", data_chunk[row]}, {"file_index", data_file[row]}}),
                          std::vector<VideoPart>(features.size()), path});
    }
    for (size_t i = 0; i < features.size(); ++i) {
      if (storage[i] != Storage::kVideo) continue;
      const std::string prefix = "videos/" + features[i].key + "/";
      const auto chunk = file.integers(prefix + "chunk_index"), index = file.integers(prefix + "file_index");
      const auto start = file.reals(prefix + "from_timestamp");
      for (size_t row = 0; row < start.size(); ++row) {
        if (!std::isfinite(start[row]) || start[row] < 0) {
          throw cxxrun::DataError("{}: episode {}: {}from_timestamp is {}", path, first + row, prefix, start[row]);
        }
        episodes[first + row].videos[i] = {
            video_pattern_.expand(features[i].key, {{"chunk_index", chunk[row]}, {"file_index", index[row]}}),
            start[row]};
      }
    }
  }
}

}  // namespace vla::data
