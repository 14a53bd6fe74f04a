#include "worker/data/memory_budget.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

namespace vla::data {
namespace {

std::optional<uint64_t> mem_available(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    uint64_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes << 10;
  }
  return std::nullopt;
}

// Of `group` below `mount` and of every group above it. "max" is no number and does not limit.
uint64_t lowest_limit(const std::filesystem::path& mount, std::filesystem::path group, const char* file_name) {
  uint64_t lowest = UINT64_MAX;
  for (group = group.relative_path();; group = group.parent_path()) {
    std::ifstream file(mount / group / file_name);
    uint64_t limit = 0;
    if (file >> limit) lowest = std::min(lowest, limit);
    if (group.empty()) return lowest;
  }
}

uint64_t cgroup_limit(const std::string& root) {
  uint64_t lowest = UINT64_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" (v2) or "4:memory:/path" (v1)
    const size_t controllers = line.find(':') + 1, path = line.find(':', controllers) + 1;
    if (controllers == 0 || path == 0) continue;
    const std::string controller = line.substr(controllers, path - 1 - controllers);
    if (controller.empty()) lowest = std::min(lowest, lowest_limit(root + "/sys/fs/cgroup", line.substr(path), "memory.max"));
    if (controller == "memory")
      lowest = std::min(lowest, lowest_limit(root + "/sys/fs/cgroup/memory", line.substr(path), "memory.limit_in_bytes"));
  }
  return lowest;
}

}  // namespace

uint64_t memory_budget(const std::string& root) {
  const std::optional<uint64_t> available = mem_available(root + "/proc/meminfo");
  return available ? std::min(*available, cgroup_limit(root)) / 2 : 0;
}

}  // namespace vla::data
