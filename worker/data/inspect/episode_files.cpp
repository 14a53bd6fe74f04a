#include "worker/data/inspect/episode_files.hpp"

#include "worker/data/lerobot/lerobot_dataset.hpp"

namespace vla::data {

EpisodeFiles::EpisodeFiles(const std::string& root) {
  if (is_lerobot(root)) meta_.emplace(root);
}

std::string EpisodeFiles::of(int64_t episode, size_t feature) const {
  if (!meta_) return "";
  const EpisodeRecord& record = meta_->episodes[static_cast<size_t>(episode)];
  return meta_->storage[feature] == Storage::kVideo ? record.videos[feature].path : record.data_path;
}

std::string EpisodeFiles::named_in(const std::string& message, int64_t episode) const {
  for (size_t feature = 0; meta_ && feature < meta_->features.size(); ++feature) {
    const std::string file = of(episode, feature);
    if (message.find(file) != std::string::npos) return file;
  }
  return "";
}

}  // namespace vla::data
