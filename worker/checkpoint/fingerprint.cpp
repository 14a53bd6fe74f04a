#include "worker/checkpoint/fingerprint.hpp"

#include <iterator>

#include <fmt/ranges.h>

namespace vla {

std::string fingerprint(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::string data_fingerprint(const data::Dataset& dataset) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{} samples, {} fps\n", dataset.size(), dataset.fps());
  for (const data::Episode& episode : dataset.episodes()) {
    fmt::format_to(out, "episode {} [{}, {})\n", episode.index, episode.begin, episode.end);
  }
  for (const data::Feature& feature : dataset.features()) {
    fmt::format_to(out, "feature {:?} {} [{}]\n", feature.key, static_cast<int>(feature.dtype), fmt::join(feature.shape, ", "));
  }
  for (const std::string& task : dataset.tasks()) fmt::format_to(out, "task {:?}\n", task);
  for (const auto& [key, of_feature] : dataset.stats()) {
    for (const auto& [name, stat] : of_feature) {
      fmt::format_to(out, "stat {:?} {} [{}] {}\n", key, name, fmt::join(stat.shape, ", "), fmt::join(stat.values, " "));
    }
  }
  return fingerprint(text);
}

}  // namespace vla
