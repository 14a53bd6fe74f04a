#include "worker/data/lerobot/metadata.hpp"

#include <algorithm>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/json_file.hpp"

namespace vla::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLargestFrame = int64_t{1} << 28;  // elements of one frame of a feature

std::vector<int64_t> get_shape(const Json& feature, const std::string& place) {
  std::vector<int64_t> shape;
  int64_t count = 1;
  const auto found = feature.find("shape");
  bool valid = found != feature.end() && found->is_array() && found->size() <= 8;
  for (size_t i = 0; valid && i < found->size(); ++i) {
    valid = (*found)[i].is_number_unsigned() && (*found)[i].get<uint64_t>() >= 1 &&
            (*found)[i].get<uint64_t>() <= static_cast<uint64_t>(kLargestFrame / count);
    if (valid) shape.push_back((*found)[i].get<int64_t>());
    if (valid) count *= shape.back();
  }
  if (!valid) throw cxxrun::DataError("{}: 'shape' must be a list of at most 8 positive numbers", place);
  return shape;
}

// [height, width, 3] of a camera. `names` tells where the channels are; without it the 3 does.
std::vector<int64_t> picture_shape(const Json& feature, const std::string& place) {
  const std::vector<int64_t> shape = get_shape(feature, place);
  if (shape.size() != 3)
    throw cxxrun::DataError("{}: a camera's 'shape' must have 3 numbers, not {}", place, shape.size());
  const auto names = feature.find("names");
  const bool named = names != feature.end() && names->is_array() && names->size() == 3 && (*names)[2].is_string();
  const std::string last = named ? (*names)[2].get<std::string>() : "";
  const bool channels_last = last.starts_with("channel") || (!named && shape[2] == 3);
  const int64_t channels = channels_last ? shape[2] : shape[0];
  if (channels != 3)
    throw cxxrun::DataError("{}: {} colour channels; only RGB cameras (3) can be read", place, channels);
  return channels_last ? shape : std::vector<int64_t>{shape[1], shape[2], 3};
}

bool is_depth_map(const Json& feature) {
  for (const char* info : {"info", "video_info"}) {
    const auto found = feature.find(info);
    if (found == feature.end() || !found->is_object()) continue;
    for (const char* key : {"is_depth_map", "video.is_depth_map"}) {
      if (found->contains(key) && (*found)[key] == true) return true;
    }
  }
  return false;
}

}  // namespace

LeRobotMetadata::LeRobotMetadata(const std::string& root_folder) : root(root_folder) {
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  read_info();
  const bool v3 = version.starts_with("v3.");
  stats_path = root + (v3 ? "/meta/stats.json" : "/meta/episodes_stats.jsonl");
  v3 ? read_tables_v3() : read_tables_v2();
}

void LeRobotMetadata::check_totals(const char* table) const {
  const int64_t frames = episodes.empty() ? 0 : episodes.back().to;
  if (static_cast<int64_t>(episodes.size()) != total_episodes_ || frames != total_frames_) {
    throw cxxrun::DataError(
        "{}: total_episodes is {} and total_frames {}, but {}/meta/{} has {} episodes with {} frames; the "
        "dataset is incomplete, copy it again",
        info_path(), total_episodes_, total_frames_, root, table, episodes.size(), frames);
  }
}

void LeRobotMetadata::set_tasks(const std::vector<int64_t>& numbers, std::vector<std::string> texts,
                                const std::string& path) {
  if (texts.empty()) throw cxxrun::DataError("{}: no tasks; the dataset is incomplete, copy it again", path);
  tasks.resize(texts.size());
  std::vector<bool> seen(texts.size());
  for (size_t row = 0; row < numbers.size(); ++row) {
    const int64_t number = numbers[row];
    if (number < 0 || number >= static_cast<int64_t>(tasks.size()) || seen[static_cast<size_t>(number)]) {
      throw cxxrun::DataError("{}: row {}: task_index {} is out of range or occurs twice; {} tasks are numbered from 0",
                              path, row, number, tasks.size());
    }
    seen[static_cast<size_t>(number)] = true;
    tasks[static_cast<size_t>(number)] = std::move(texts[row]);
  }
}

void LeRobotMetadata::read_info() {
  const Json info = read_json(info_path());
  version = get<std::string>(info, "codebase_version", info_path());
  const bool v2 = version == "v2.1" || version == "v2.0";
  if (!v2 && !version.starts_with("v3.")) {
    throw cxxrun::DataError("{}: codebase_version is '{}', this program reads v3.0, v2.1 and v2.0{}", info_path(),
                            version,
                            version.starts_with("v1.") ? "; convert the dataset with LeRobot's converters" : "");
  }
  fps = get<double>(info, "fps", info_path());
  if (!(fps > 0) || fps > 1e6) throw cxxrun::DataError("{}: fps is {}, expected a positive number", info_path(), fps);
  total_episodes_ = get<int64_t>(info, "total_episodes", info_path());
  total_frames_ = get<int64_t>(info, "total_frames", info_path());
  if (total_episodes_ < 1 || total_frames_ < 1) throw cxxrun::DataError("{}: the dataset has no frames", info_path());
  if (v2) episodes_per_chunk_ = get<int64_t>(info, "chunks_size", info_path());
  if (episodes_per_chunk_ < 1)
    throw cxxrun::DataError("{}: chunks_size is {}, expected a positive number", info_path(), episodes_per_chunk_);
  data_pattern_ = {get<std::string>(info, "data_path", info_path()), root, info_path()};

  const auto declared = info.find("features");
  if (declared == info.end() || !declared->is_object())
    throw cxxrun::DataError("{}: key 'features' is missing", info_path());
  for (const auto& [key, feature] : declared->items()) {
    const std::string place = fmt::format("{}: feature '{}'", info_path(), key);
    if (!feature.is_object()) throw cxxrun::DataError("{}: not an object", place);
    const auto dtype = get<std::string>(feature, "dtype", place);
    const auto add = [&](FeatureType type, DType stored, std::vector<int64_t> shape, Storage where) {
      features.push_back({key, type, stored, std::move(shape)});
      storage.push_back(where);
    };
    if (key == "index" || key == "episode_index" || key == "frame_index" || key == "task_index") continue;
    if (dtype == "video" || dtype == "image") {
      if (is_depth_map(feature)) {
        unsupported[key] = "it is a depth map";
      } else {
        add(FeatureType::kVisual, DType::kUInt8, picture_shape(feature, place),
            dtype == "video" ? Storage::kVideo : Storage::kImage);
      }
      continue;
    }
    const FeatureType type = numeric_feature_type(key);
    const bool is_float = dtype.starts_with("float");
    const bool is_int = dtype.starts_with("int") || dtype.starts_with("uint");
    if (!is_float && !is_int && dtype != "bool") {
      unsupported[key] = "its dtype is '" + dtype + "'";
    } else {
      // Policies compute with states and actions, whatever they are stored as.
      const DType stored = is_float || type != FeatureType::kOther ? DType::kFloat32
                           : is_int                                ? DType::kInt64
                                                                   : DType::kBool;
      add(type, stored, get_shape(feature, place), Storage::kColumn);
    }
  }
  if (std::count(storage.begin(), storage.end(), Storage::kVideo) > 0)
    video_pattern_ = {get<std::string>(info, "video_path", info_path()), root, info_path()};
}

}  // namespace vla::data
