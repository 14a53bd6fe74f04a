// The tables of LeRobot v2: meta/tasks.jsonl, episodes.jsonl and episodes_stats.jsonl (v2.0: stats.json). One data file and one video
// of each camera an episode.
#include <filesystem>
#include <map>

#include "common/error.hpp"
#include "worker/data/json_file.hpp"
#include "worker/data/lerobot/metadata.hpp"
#include "worker/data/stats_merge.hpp"

namespace vla::data {

using Json = nlohmann::ordered_json;

void LeRobotMetadata::read_tables_v2() {
  const std::string tasks_path = root + "/meta/tasks.jsonl";
  std::vector<int64_t> numbers;
  std::vector<std::string> texts;
  read_json_lines(tasks_path, [&](const Json& line, const std::string& place) {
    numbers.push_back(get<int64_t>(line, "task_index", place));
    texts.push_back(get<std::string>(line, "task", place));
  });
  set_tasks(numbers, std::move(texts), tasks_path);
  read_episodes_v2();
  check_totals("episodes.jsonl");
  if (std::filesystem::exists(stats_path) || version != "v2.0") {
    read_episode_stats();
  } else {
    stats_path = root + "/meta/stats.json";
    stats = to_stats(read_json(stats_path), stats_path);
  }
}

void LeRobotMetadata::read_episodes_v2() {
  const std::string path = root + "/meta/episodes.jsonl";
  std::map<int64_t, int64_t> lengths;  // by number; lines may stand in any order
  read_json_lines(path, [&](const Json& line, const std::string& place) {
    const auto number = get<int64_t>(line, "episode_index", place), length = get<int64_t>(line, "length", place);
    if (number < 0 || number >= total_episodes_ || length < 1 || length > total_frames_) {
      throw cxxrun::DataError("{}: episode_index {} with length {} does not fit the {} episodes with {} frames of {}",
                              place, number, length, total_episodes_, total_frames_, info_path());
    }
    if (!lengths.emplace(number, length).second)
      throw cxxrun::DataError("{}: episode_index {} occurs twice", place, number);
  });
  int64_t from = 0;
  for (const auto& [number, length] : lengths) {
    if (number != static_cast<int64_t>(episodes.size())) {
      throw cxxrun::DataError("{}: episode {} is missing; the dataset is incomplete, copy it again", path,
                              episodes.size());
    }
    if (length > total_frames_ - from)
      throw cxxrun::DataError("{}: more than the {} frames of {}", path, total_frames_, info_path());
    const auto expand = [&](const PathPattern& pattern, const std::string& video_key) {
      return pattern.expand(video_key, {{"episode_chunk", number / episodes_per_chunk_}, {"episode_index", number}});
    };
    EpisodeRecord& episode = episodes.emplace_back(EpisodeRecord{length, from, from + length, expand(data_pattern_, ""),
                                                                 std::vector<VideoPart>(features.size()), path});
    for (size_t i = 0; i < features.size(); ++i) {
      if (storage[i] == Storage::kVideo) episode.videos[i] = {expand(video_pattern_, features[i].key), 0};
    }
    from += length;
  }
}

void LeRobotMetadata::read_episode_stats() {
  StatsMerger merger;
  std::vector<bool> seen(episodes.size());
  size_t count = 0;
  read_json_lines(stats_path, [&](const Json& line, const std::string& place) {
    const auto number = get<int64_t>(line, "episode_index", place);
    if (number < 0 || number >= static_cast<int64_t>(episodes.size()) || seen[static_cast<size_t>(number)]) {
      throw cxxrun::DataError("{}: episode_index {} is out of range or occurs twice; there are {} episodes", place,
                              number, episodes.size());
    }
    const auto of_episode = line.find("stats");
    if (of_episode == line.end()) throw cxxrun::DataError("{}: key 'stats' is missing", place);
    seen[static_cast<size_t>(number)] = true;
    ++count;
    merger.add(to_stats(*of_episode, place), static_cast<double>(episodes[static_cast<size_t>(number)].length), place);
  });
  if (count != episodes.size()) {
    throw cxxrun::DataError("{}: statistics of {} episodes, but the dataset has {}; it is incomplete, copy it again",
                            stats_path, count, episodes.size());
  }
  stats = merger.merged();
}

}  // namespace vla::data
