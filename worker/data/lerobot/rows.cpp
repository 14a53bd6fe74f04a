#include "worker/data/lerobot/rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {

LeRobotRows::LeRobotRows(const LeRobotMetadata& meta, const std::vector<Episode>& episodes)
    : pictures(meta.features.size()), meta_(meta), episodes_(episodes) {
  for (const Feature& feature : meta.features) numbers.push_back({feature.dtype, feature.shape, {}});
  for (auto first = episodes.begin(); first != episodes.end();) {
    const auto last = std::find_if(first, episodes.end(),
                                   [&](const Episode& e) { return record(e).data_path != record(*first).data_path; });
    read_file({first, last});
    first = last;
  }
}

// Requires: the episodes stand in the same file.
void LeRobotRows::read_file(std::span<const Episode> episodes) {
  ParquetFile file(record(episodes.front()).data_path);
  // The file's episodes, selected or not, stand together in meta/episodes.
  const auto elsewhere = [&](const EpisodeRecord& other) { return other.data_path != file.path(); };
  const auto some = meta_.episodes.begin() + episodes.front().index;
  const auto last = std::find_if(some, meta_.episodes.end(), elsewhere) - 1;
  const auto first = std::find_if(std::make_reverse_iterator(some), meta_.episodes.rend(), elsewhere).base();
  if (last->to - first->from != file.row_count()) {
    throw cxxrun::DataError(
        "{}: {} rows, but {} places {} rows in this file; the dataset is incomplete or mixed, copy it again",
        file.path(), file.row_count(), first->source, last->to - first->from);
  }
  check_keys(file, episodes, first->from);

  std::vector<RowRange> ranges;
  for (const Episode& episode : episodes) {
    const RowRange range{record(episode).from - first->from, record(episode).to - first->from};
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  for (size_t i = 0; i < meta_.features.size(); ++i) {
    if (meta_.storage[i] == Storage::kColumn) file.read(meta_.features[i].key, ranges, numbers[i]);
    if (meta_.storage[i] == Storage::kImage) file.read(meta_.features[i].key, ranges, pictures[i]);
  }
}

// `first_row`: the file's, in the whole dataset.
void LeRobotRows::check_keys(ParquetFile& file, std::span<const Episode> episodes, int64_t first_row) {
  const auto indices = file.integers("index"), episode_indices = file.integers("episode_index"),
             frame_indices = file.integers("frame_index"), task_indices = file.integers("task_index");
  for (const Episode& episode : episodes) {
    for (int64_t frame = 0; frame < record(episode).length; ++frame) {
      const auto row = static_cast<size_t>(record(episode).from - first_row + frame);
      const auto check = [&](const char* column, int64_t value, int64_t expected) {
        if (value == expected) return;
        throw cxxrun::DataError(
            "{}: column '{}', row {}: {}, but {} says {} (episode {}, frame {}); recompute meta/episodes from the "
            "rows, or convert the "
            "dataset again",
            file.path(), column, row, value, record(episode).source, expected, episode.index, frame);
      };
      check("episode_index", episode_indices[row], episode.index);
      check("frame_index", frame_indices[row], frame);
      check("index", indices[row], record(episode).from + frame);
      if (task_indices[row] < 0 || task_indices[row] >= static_cast<int64_t>(meta_.tasks.size())) {
        throw cxxrun::DataError("{}: column 'task_index', row {}: {} is not one of the {} tasks in meta/tasks",
                                file.path(), row, task_indices[row], meta_.tasks.size());
      }
      index.push_back(indices[row]);
      task_index.push_back(task_indices[row]);
    }
  }
}

std::string LeRobotRows::name(int64_t sample) const {
  const Episode& episode = episode_of(episodes_, sample);
  return fmt::format("{}: episode {} frame {} (row {} of the dataset)", record(episode).data_path, episode.index,
                     sample - episode.begin, index[static_cast<size_t>(sample)]);
}

void LeRobotRows::check_finite(size_t feature) const {
  const NumericColumn& column = numbers[feature];
  if (column.dtype != DType::kFloat32) return;
  const size_t per_row = bytes_per_frame(meta_.features[feature]);
  for (size_t at = 0; at < column.values.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, column.values.data() + at, sizeof value);
    if (std::isfinite(value)) continue;
    throw cxxrun::DataError("{}: '{}'[{}] is {}; repair the row, or leave the episode out (dataset.episodes)",
                            name(static_cast<int64_t>(at / per_row)), meta_.features[feature].key,
                            at % per_row / sizeof value, value);
  }
}

}  // namespace vla::data
