// How many ranks this machine gets. GPUs are counted by the tokens of CUDA_VISIBLE_DEVICES, which are opaque (ordinals,
// UUIDs, MIG slices) and never changed, else through NVML, loaded at run time and only when its answer is needed (no CUDA
// context). Throws UsageError for a count that cannot be met, with both numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/options.hpp"

namespace cxxrun {

// The tokens of a CUDA_VISIBLE_DEVICES value that CUDA would use: an empty or negative token ends the list, a repeated one
// empties it.
std::vector<std::string> device_tokens(const std::string& list);

// GPUs in the machine; CXXRUN_FAKE_GPUS overrides, for tests. 0 without a driver.
int count_installed_gpus(const Environment& environment);

// CPUs this process may use: its affinity mask and the cgroup's quota, rounded up; at least 1.
int count_usable_cpus();

// Resolves --nproc-per-node: a number, gpu, cpu or auto.
int count_local_ranks(const std::string& nproc_per_node, const Environment& environment);

}  // namespace cxxrun
