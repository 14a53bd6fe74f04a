// --numa-binding: the CPUs near each rank's GPU, by the rules of torchrun's torch/numa/binding.py (2.11), and the memory of
// the same nodes. Rank i gets the i-th visible GPU. Pure look-ups: the child applies the placement to itself.
#pragma once

#include <vector>

#include "launcher/devices/cpu_placement.hpp"
#include "launcher/devices/cpu_topology.hpp"
#include "launcher/options/options.hpp"

namespace cxxrun {

// One placement a local rank, or none at all: for kNone, and for kAuto where there is nothing to gain or to find out. Throws
// UsageError where another mode has no GPU, or no CPU, for a rank.
std::vector<CpuPlacement> place_ranks(NumaBinding binding, int local_ranks, const Environment& environment,
                                      const CpuTopology& topology = CpuTopology());

}  // namespace cxxrun
