#include "worker/data/json_file.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/atomic_file.hpp"

namespace vla::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr uintmax_t kLargestFile = 256U << 20;
constexpr int kDeepest = 16;  // writing a value into a message takes stack by its depth

// Python's json writes these words, which JSON does not have.
void replace_non_finite(std::string& text) {
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string) {
      if (text[i] == '\\') ++i;
      continue;
    }
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (text.compare(i, word.size(), word) == 0) text.replace(i, word.size(), "null");
    }
  }
}

Json parse(std::string& text, const std::string& place) {
  replace_non_finite(text);
  const auto check = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) throw cxxrun::DataError("{}: nested more than {} levels deep", place, kDeepest);
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const nlohmann::json::exception& problem) {
    throw cxxrun::DataError("{}: not valid JSON ({}); the file is damaged, copy it again", place, problem.what());
  }
}

void append_values(const Json& value, size_t level, StatTensor& out, const std::string& place) {
  const bool is_list = level < out.shape.size();
  if (value.is_array() != is_list || (is_list && static_cast<int64_t>(value.size()) != out.shape[level])) {
    throw cxxrun::DataError("{}: lists of unequal length or depth", place);
  }
  if (is_list) {
    for (const Json& entry : value) append_values(entry, level + 1, out, place);
  } else if (value.is_boolean()) {
    out.values.push_back(value.get<bool>() ? 1 : 0);  // the least and largest of a bool feature, in v2.1
  } else if (value.is_number() || value.is_null()) {
    out.values.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  } else {
    throw cxxrun::DataError("{}: {} is not a number", place, value.dump().substr(0, 80));
  }
}

StatTensor to_tensor(const Json& value, const std::string& place) {
  StatTensor tensor;
  for (const Json* level = &value; level->is_array() && tensor.shape.size() < 8; level = &level->front()) {
    if (level->empty()) throw cxxrun::DataError("{}: an empty list", place);
    tensor.shape.push_back(static_cast<int64_t>(level->size()));
  }
  append_values(value, 0, tensor, place);
  return tensor;
}

}  // namespace

nlohmann::ordered_json read_json(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw cxxrun::DataError("cannot open {}: {}", path, error.message());
  if (size > kLargestFile) throw cxxrun::DataError("{}: {} bytes is more than such a file can have", path, size);
  std::string text = cxxrun::read_file(path);
  return parse(text, path);
}

void read_json_lines(const std::string& path, const std::function<void(const Json&, const std::string&)>& use) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    throw cxxrun::DataError("cannot open {}; the dataset is incomplete, copy it again", path);
  std::string text;
  for (int64_t line = 1; std::getline(file, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}: line {}", path, line);
    use(parse(text, place), place);
  }
  if (file.bad()) throw cxxrun::DataError("{}: cannot be read to its end", path);
}

DatasetStats to_stats(const Json& json, const std::string& place) {
  if (!json.is_object()) throw cxxrun::DataError("{}: the statistics are not an object", place);
  DatasetStats stats;
  for (const auto& [key, of_feature] : json.items()) {
    if (!of_feature.is_object()) throw cxxrun::DataError("{}: '{}' is not an object", place, key);
    for (const auto& [stat, value] : of_feature.items())
      stats[key][stat] = to_tensor(value, fmt::format("{}: '{}' of '{}'", place, stat, key));
  }
  return stats;
}

}  // namespace vla::data
