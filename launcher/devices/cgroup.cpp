#include "launcher/devices/cgroup.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

namespace cxxrun {
namespace {

namespace fs = std::filesystem;

// "oom_kill 3" among other lines, in memory.events (v2) and memory.oom_control (v1).
int64_t read_oom_kills(const fs::path& file) {
  std::ifstream lines(file);
  std::string name;
  for (int64_t value = 0; lines >> name >> value;) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

}  // namespace

std::vector<CgroupFolder> cgroup_folders(const std::string& controller, const CgroupSource& source) {
  std::vector<CgroupFolder> folders;
  std::ifstream groups(source.groups);  // "4:cpu,cpuacct:/group" or "0::/group"
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) == std::string::npos) {
      continue;
    }
    const fs::path mount = unified ? source.mount : source.mount / controller;
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      std::error_code ignored;
      if (fs::is_directory(mount / group, ignored)) folders.push_back({mount / group, unified ? 2 : 1});
      if (group.empty()) break;
    }
  }
  return folders;
}

double cgroup_cpu_quota(const CgroupSource& source) {
  double cpus = INFINITY;
  for (const CgroupFolder& folder : cgroup_folders("cpu", source)) {
    double quota = -1, period = 0;  // "max" leaves quota as it is
    if (folder.version == 2) {
      std::ifstream(folder.path / "cpu.max") >> quota >> period;
    } else {
      std::ifstream(folder.path / "cpu.cfs_quota_us") >> quota;
      std::ifstream(folder.path / "cpu.cfs_period_us") >> period;
    }
    if (quota > 0 && period > 0) cpus = std::min(cpus, quota / period);
  }
  return cpus;
}

int64_t cgroup_oom_kills(const CgroupSource& source) {
  int64_t kills = 0;
  for (const CgroupFolder& folder : cgroup_folders("memory", source)) {
    kills =
        std::max(kills, read_oom_kills(folder.path / (folder.version == 2 ? "memory.events" : "memory.oom_control")));
  }
  return kills;
}

}  // namespace cxxrun
