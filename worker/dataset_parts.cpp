#include "worker/dataset_parts.hpp"

#include <charconv>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "worker/data/hub_cache.hpp"

namespace vla {
namespace {

using cxxrun::UsageError;

constexpr int64_t kMostEpisodes = 10'000'000;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <class T>
T number(std::string_view text, std::string_view part, std::string_view expected) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > static_cast<T>(kMostEpisodes)) {
    throw UsageError("dataset.datasets: '{}': '{}' is not {}", part, text, expected);
  }
  return value;
}

std::vector<int64_t> episodes(std::string_view text, std::string_view part) {
  std::vector<int64_t> numbers;
  for (const std::string_view range : split(text, '+')) {
    const size_t dash = range.find('-');
    const auto first = number<int64_t>(range.substr(0, dash), part, "an episode's number");
    const auto last = dash == std::string_view::npos ? first : number<int64_t>(range.substr(dash + 1), part, "an episode's number");
    for (int64_t episode = first; episode <= last; ++episode) numbers.push_back(episode);
  }
  return numbers;
}

DatasetPart parse_part(std::string_view text) {
  DatasetPart part;
  for (const std::string_view field : split(text, ';')) {
    const size_t equals = field.find('=');
    const std::string_view key = field.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : field.substr(equals + 1);
    if (equals == std::string_view::npos && part.path.empty()) {
      part.path = field;  // a bare path
    } else if (key == "path" || key == "root") {
      part.path = value;
    } else if (key == "weight") {
      part.weight = number<double>(value, text, "a weight of at least 0");
    } else if (key == "episodes") {
      part.episodes = episodes(value, text);
    } else {
      throw UsageError("dataset.datasets: '{}': unknown key '{}'{}", text, key, cxxrun::did_you_mean(key, {"path", "weight", "episodes"}));
    }
  }
  if (part.path.empty()) throw UsageError("dataset.datasets: '{}' has no path", text);
  return part;
}

}  // namespace

std::vector<DatasetPart> dataset_parts(const DatasetOptions& options) {
  if (!options.datasets.empty() && !options.root.empty()) {
    throw UsageError("dataset.root='{}' and dataset.datasets both name data; put the former into the list", options.root);
  }
  std::vector<DatasetPart> parts;
  double sum = options.datasets.empty() ? 1 : 0;
  size_t weighted = 0;
  for (const std::string& text : options.datasets) {
    parts.push_back(parse_part(text));
    weighted += parts.back().weight ? 1 : 0;
    sum += parts.back().weight.value_or(1);
  }
  if (weighted != 0 && weighted != parts.size()) {
    throw UsageError("dataset.datasets: {} of {} parts have a weight; give one to each of them, or to none", weighted, parts.size());
  }
  if (parts.empty() && !(options.root.empty() && options.repo_id.empty())) {
    const std::string path = options.root.empty() ? data::find_dataset_folder(options.repo_id) : options.root;
    parts.push_back({.path = path, .weight = {}, .episodes = options.episodes});
  }
  if (!parts.empty() && sum <= 0) throw UsageError("dataset.datasets: all weights are 0");
  return parts;
}

}  // namespace vla
