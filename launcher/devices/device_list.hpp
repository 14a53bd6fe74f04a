// How many ranks this machine gets and which devices they see. GPUs are counted by the tokens of CUDA_VISIBLE_DEVICES, which
// are opaque (ordinals, UUIDs, MIG slices) and never changed, else through NVML, and only when its answer is needed. Throws
// UsageError for what cannot be met, with both numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/options.hpp"

namespace cxxrun {

// The tokens of a CUDA_VISIBLE_DEVICES value that CUDA would use: an empty or negative token ends the list, a repeated one
// empties it.
std::vector<std::string> device_tokens(const std::string& list);

// The GPUs that ranks will see, in order: the tokens of CUDA_VISIBLE_DEVICES, or without it the numbers of all.
std::vector<std::string> visible_gpus(const Environment& environment);

// CPUs this process may use: its affinity mask and the cgroup's quota, rounded up; at least 1.
int count_usable_cpus();

// Resolves --nproc-per-node: a number, gpu, cpu or auto.
int count_local_ranks(const std::string& nproc_per_node, const Environment& environment);

// What to say when a plain number of ranks exceeds the GPUs of a machine that has some; "" = nothing.
std::string few_gpus_warning(const std::string& nproc_per_node, const Environment& environment);

// --virtual-local-rank: CUDA_VISIBLE_DEVICES of each local rank. A list that switches the GPUs off stays as it is.
std::vector<std::string> rank_devices(int local_ranks, const Environment& environment);

}  // namespace cxxrun
