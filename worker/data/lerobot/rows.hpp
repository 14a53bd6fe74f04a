// The rows of a LeRobot dataset's selected episodes: numbers as arrays, pictures as encoded bytes, all in memory. Reads the data files
// and checks every row against meta/episodes. Throws DataError naming file, column and row. Immutable after construction.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"
#include "worker/data/lerobot/metadata.hpp"
#include "worker/data/lerobot/parquet_file.hpp"

namespace vla::data {

class LeRobotRows {
 public:
  // `episodes`: the selected ones in ascending order. Both arguments must outlive this object.
  LeRobotRows(const LeRobotMetadata& meta, const std::vector<Episode>& episodes);

  std::vector<int64_t> index, task_index;  // by sample
  std::vector<NumericColumn> numbers;  // by feature; without values for cameras
  std::vector<BinaryColumn> pictures;  // by feature; empty for all but pictures in parquet

  // "FILE: episode 3 frame 7 (row 220 of the dataset)"
  std::string name(int64_t sample) const;
  // Throws when a value of `feature` is NaN or infinite.
  void check_finite(size_t feature) const;

 private:
  const EpisodeRecord& record(const Episode& episode) const {
    return meta_.episodes[static_cast<size_t>(episode.index)];
  }
  void read_file(std::span<const Episode> episodes);
  void check_keys(ParquetFile& file, std::span<const Episode> episodes, int64_t first_row);

  const LeRobotMetadata& meta_;
  const std::vector<Episode>& episodes_;
};

}  // namespace vla::data
