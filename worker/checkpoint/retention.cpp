#include "worker/checkpoint/retention.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace vla {

namespace fs = std::filesystem;

std::string checkpoint_name(int64_t step) { return fmt::format("{:06}", step); }

std::string leftover_name(const std::string& name) { return "." + name + ".tmp"; }

std::vector<int64_t> list_checkpoints(const fs::path& checkpoints) {
  std::vector<int64_t> steps;
  if (!fs::is_directory(checkpoints)) return steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints)) {
    const std::string name = entry.path().filename();
    int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (error == std::errc() && checkpoint_name(step) == name && entry.is_directory() && !entry.is_symlink())
      steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<int64_t> plan_removal(const std::vector<int64_t>& steps, const Retention& retention,
                                  const std::vector<int64_t>& protected_steps) {
  std::vector<int64_t> removed;
  const auto count = static_cast<int64_t>(steps.size());
  for (int64_t i = 0; retention.keep > 0 && i < count - retention.keep; ++i) {
    const int64_t step = steps[static_cast<size_t>(i)];
    const bool is_milestone = retention.keep_every > 0 && step % retention.keep_every == 0;
    if (!is_milestone && std::ranges::find(protected_steps, step) == protected_steps.end()) removed.push_back(step);
  }
  return removed;
}

void remove_checkpoint(const fs::path& checkpoints, int64_t step) {
  const fs::path hidden = checkpoints / leftover_name(checkpoint_name(step) + ".removed");
  fs::remove_all(hidden);
  fs::rename(checkpoints / checkpoint_name(step), hidden);
  fs::remove_all(hidden);
}

void remove_leftovers(const fs::path& checkpoints) {
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints)) {
    const std::string name = entry.path().filename();
    if (name.starts_with('.') && name.ends_with(".tmp")) fs::remove_all(entry.path());
  }
}

}  // namespace vla
