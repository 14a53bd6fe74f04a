// How much memory this process could still take without harm to the machine or to its container. Reads /proc and /sys once per call.
#pragma once

#include <cstdint>
#include <string>

namespace vla::data {

// Half of the smaller of MemAvailable and the lowest memory limit of the process's cgroup (v1 or v2) and those above it, in bytes.
// `root` stands before /proc and /sys (for tests). What cannot be read does not limit; 0 if nothing can.
uint64_t memory_budget(const std::string& root = "");

}  // namespace vla::data
