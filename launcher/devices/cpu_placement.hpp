// Where a rank may run and allocate: what a NUMA binding comes down to. Empty lists leave things as they are.
#pragma once

#include <vector>

namespace cxxrun {

struct CpuPlacement {
  std::vector<int> cpus = {};  // sched_setaffinity
  std::vector<int> memory_nodes = {};  // preferred by set_mempolicy

  bool operator==(const CpuPlacement&) const = default;
};

}  // namespace cxxrun
