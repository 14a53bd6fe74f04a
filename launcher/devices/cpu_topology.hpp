// How the CPUs of a machine lie: NUMA nodes, sockets, cores, caches, and the node a PCI device is on, read from sysfs. All
// sets hold CPUs that this process may use and no others. Throws Error naming the file that is missing or unreadable.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace cxxrun {

using CpuSet = std::set<int>;

// The affinity mask of the calling thread.
CpuSet allowed_cpus();

// "0-2,4" as the kernel writes sets. Throws Error.
std::set<int> parse_kernel_set(const std::string& text);

class CpuTopology {
 public:
  explicit CpuTopology(std::filesystem::path sysfs_root = "/sys", CpuSet allowed = allowed_cpus());

  std::set<int> nodes() const;
  CpuSet cpus_of_node(int node) const;
  int node_of_device(const std::string& pci_address) const;  // 0 where the machine does not say
  int socket_of(int cpu) const;
  int core_of(int cpu) const;  // the lowest CPU of the same core, allowed or not
  int core_complex_of(int cpu) const;  // the lowest CPU that shares the highest data cache

 private:
  std::filesystem::path cpu_folder(int cpu) const;

  std::filesystem::path root_;
  CpuSet allowed_;
};

}  // namespace cxxrun
