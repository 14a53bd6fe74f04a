// Which files an episode's rows and pictures stand in, as far as the dataset's format tells. Immutable after construction.
#pragma once

#include <optional>
#include <string>

#include "worker/data/lerobot/metadata.hpp"

namespace vla::data {

class EpisodeFiles {
 public:
  explicit EpisodeFiles(const std::string& root);

  // 0 where the format does not tell.
  int64_t episode_count() const { return meta_ ? static_cast<int64_t>(meta_->episodes.size()) : 0; }
  // "" where the format does not tell. `feature`: its number in Dataset::features().
  std::string of(int64_t episode, size_t feature) const;
  // The file of the episode that `message` speaks of, or "".
  std::string named_in(const std::string& message, int64_t episode) const;

 private:
  std::optional<LeRobotMetadata> meta_;
};

}  // namespace vla::data
