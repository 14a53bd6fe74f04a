// The cgroups that this process is in, of either version. Pure look-ups; what cannot be read is absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace cxxrun {

struct CgroupFolder {
  std::filesystem::path path;
  int version = 2;
};

// Where the kernel tells of groups; tests have their own.
struct CgroupSource {
  std::filesystem::path groups = "/proc/self/cgroup";
  std::filesystem::path mount = "/sys/fs/cgroup";
};

// The folders that limit `controller` ("cpu", "memory") here: our own group and those above it, as far as they are mounted.
std::vector<CgroupFolder> cgroup_folders(const std::string& controller, const CgroupSource& source = {});

// CPUs that the tightest quota allows; infinity without one.
double cgroup_cpu_quota(const CgroupSource& source = {});

// How many processes of our group the kernel has killed for lack of memory.
int64_t cgroup_oom_kills(const CgroupSource& source = {});

}  // namespace cxxrun
