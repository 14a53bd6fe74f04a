#include "worker/data/lerobot/metadata.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/lerobot/json_file.hpp"
#include "worker/data/lerobot/parquet_file.hpp"

namespace vla::data {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kLargestFrame = int64_t{1} << 28;  // elements of one frame of a feature

template <class Value>
Value get(const Json& object, const char* key, const std::string& place) {
  const auto found = object.find(key);
  if (found == object.end()) throw cxxrun::DataError("{}: key '{}' is missing", place, key);
  const bool fits = std::is_same_v<Value, std::string> ? found->is_string()
                    : std::is_same_v<Value, double>    ? found->is_number()
                                                       : found->is_number_integer();
  if (!fits)
    throw cxxrun::DataError("{}: key '{}' has the value {}, expected {}", place, key, found->dump().substr(0, 80),
                            std::is_same_v<Value, std::string> ? "text" : "a number");
  return found->get<Value>();
}

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

void append_values(const Json& value, size_t level, StatTensor& out, const std::string& place) {
  const bool is_list = level < out.shape.size();
  if (value.is_array() != is_list || (is_list && static_cast<int64_t>(value.size()) != out.shape[level])) {
    throw cxxrun::DataError("{}: lists of unequal length or depth", place);
  }
  if (is_list) {
    for (const Json& entry : value) append_values(entry, level + 1, out, place);
    return;
  }
  if (!value.is_number() && !value.is_null())
    throw cxxrun::DataError("{}: {} is not a number", place, value.dump().substr(0, 80));
  out.values.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
}

// Nested lists as a tensor: the first entries tell the shape, all others must agree.
StatTensor to_tensor(const Json& value, const std::string& place) {
  StatTensor tensor;
  for (const Json* level = &value; level->is_array() && tensor.shape.size() < 8; level = &level->front()) {
    if (level->empty()) throw cxxrun::DataError("{}: an empty list", place);
    tensor.shape.push_back(static_cast<int64_t>(level->size()));
  }
  append_values(value, 0, tensor, place);
  return tensor;
}

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

LeRobotMetadata::LeRobotMetadata(const std::string& root_folder) : root(root_folder) {
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  read_info();
  read_stats();
  read_tasks();
  read_episodes();
}

void LeRobotMetadata::read_info() {
  const Json info = read_json(info_path());
  const std::string version = info.is_object() ? get<std::string>(info, "codebase_version", info_path()) : "";
  if (!version.starts_with("v3.")) {
    const bool old = version.starts_with("v2.") || version.starts_with("v1.");
    throw cxxrun::DataError("{}: codebase_version is '{}', this program reads v3.0{}", info_path(), version,
                            old ? "; convert the dataset with LeRobot's convert_dataset_v21_to_v30" : "");
  }
  fps = get<double>(info, "fps", info_path());
  if (!(fps > 0) || fps > 1e6) throw cxxrun::DataError("{}: fps is {}, expected a positive number", info_path(), fps);
  total_episodes_ = get<int64_t>(info, "total_episodes", info_path());
  total_frames_ = get<int64_t>(info, "total_frames", info_path());
  if (total_episodes_ < 1 || total_frames_ < 1) throw cxxrun::DataError("{}: the dataset has no frames", info_path());
  data_pattern_ = get<std::string>(info, "data_path", info_path());

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
    video_pattern_ = get<std::string>(info, "video_path", info_path());
}

void LeRobotMetadata::read_stats() {
  const Json json = read_json(stats_path());
  for (const auto& [key, of_feature] : json.items()) {
    if (!of_feature.is_object()) throw cxxrun::DataError("{}: '{}' is not an object", stats_path(), key);
    for (const auto& [stat, value] : of_feature.items())
      stats[key][stat] = to_tensor(value, fmt::format("{}: '{}' of '{}'", stats_path(), stat, key));
  }
}

void LeRobotMetadata::read_tasks() {
  ParquetFile file(root + "/meta/tasks.parquet");
  // The text is pandas' index, which may be unnamed. It belongs to the row's task_index, not to the row's position.
  const std::vector<std::string> texts =
      file.strings(file.has_column("__index_level_0__") ? "__index_level_0__" : "task");
  const std::vector<int64_t> numbers = file.integers("task_index");
  tasks.resize(texts.size());
  std::vector<bool> seen(texts.size());
  for (size_t row = 0; row < numbers.size(); ++row) {
    const int64_t number = numbers[row];
    if (number < 0 || number >= static_cast<int64_t>(tasks.size()) || seen[static_cast<size_t>(number)]) {
      throw cxxrun::DataError("{}: row {}: task_index {} is out of range or occurs twice; {} tasks are numbered from 0",
                              file.path(), row, number, tasks.size());
    }
    seen[static_cast<size_t>(number)] = true;
    tasks[static_cast<size_t>(number)] = texts[row];
  }
}

void LeRobotMetadata::read_episodes() {
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
      episodes.push_back({length[row], from[row], to[row], expand(data_pattern_, "", data_chunk[row], data_file[row]),
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
        episodes[first + row].videos[i] = {expand(video_pattern_, features[i].key, chunk[row], index[row]), start[row]};
      }
    }
  }
  if (static_cast<int64_t>(episodes.size()) != total_episodes_ || frames != total_frames_) {
    throw cxxrun::DataError(
        "{}: total_episodes is {} and total_frames {}, but {}/meta/episodes has {} episodes with {} frames; the "
        "dataset is incomplete, copy it again",
        info_path(), total_episodes_, total_frames_, root, episodes.size(), frames);
  }
}

// Python's str.format for the three names that occur, with zero-padded widths.
std::string LeRobotMetadata::expand(const std::string& pattern, const std::string& video_key, int64_t chunk_index,
                                    int64_t file_index) const {
  const auto bad = [&](const std::string& why) {
    return cxxrun::DataError("{}: path '{}' {}", info_path(), pattern, why);
  };
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '{') {
      path += pattern[i];
      continue;
    }
    const size_t close = pattern.find('}', i);
    if (close == std::string::npos) throw bad("has a '{' without '}'");
    const std::string field = pattern.substr(i + 1, close - i - 1);
    const std::string name = field.substr(0, field.find(':'));
    const std::string width = field.substr(std::min(field.size(), name.size() + 1));
    const bool plain = width.empty(),
               padded = width.size() == 3 && width[0] == '0' && width[1] >= '0' && width[1] <= '9' && width[2] == 'd';
    const int digits = padded ? width[1] - '0' : 0;
    if (name == "video_key" && plain) {
      path += video_key;
    } else if ((name == "chunk_index" || name == "file_index") && (plain || padded)) {
      const int64_t value = name == "chunk_index" ? chunk_index : file_index;
      if (value < 0) throw bad(fmt::format("with {} = {}", name, value));
      path += fmt::format("{:0{}d}", value, digits);
    } else {
      throw bad("has an unknown part {" + field + "}");
    }
    i = close;
  }
  const fs::path normal = fs::path(path).lexically_normal();
  if (path.empty() || normal.is_absolute() || *normal.begin() == "..")
    throw bad(fmt::format("leads outside the dataset's folder ('{}')", path));
  return root + "/" + normal.string();
}

}  // namespace vla::data
