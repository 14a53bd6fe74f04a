#include "launcher/devices/cpu_topology.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "common/error.hpp"

namespace cxxrun {
namespace {

namespace fs = std::filesystem;

std::string read_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  if (!std::getline(stream, line)) throw Error("cannot read '{}'", file.string());
  return line;
}

int read_int(const fs::path& file) {
  const std::string line = read_line(file);
  int value = 0;
  if (std::from_chars(line.data(), line.data() + line.size(), value).ec != std::errc()) {
    throw Error("'{}' in '{}' is not a number", line, file.string());
  }
  return value;
}

int first_in(const fs::path& file) {
  const std::set<int> members = parse_kernel_set(read_line(file));
  if (members.empty()) throw Error("'{}' is empty", file.string());
  return *members.begin();
}

}  // namespace

CpuSet allowed_cpus() {
  CpuSet cpus;
  // Machines with more CPUs than cpu_set_t holds make the call fail; the mask grows until it fits.
  for (int capacity = CPU_SETSIZE; cpus.empty() && capacity <= CPU_SETSIZE * 64; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const size_t size = CPU_ALLOC_SIZE(capacity);
    if (::sched_getaffinity(0, size, set) == 0) {
      for (int cpu = 0; cpu < capacity; ++cpu) {
        if (CPU_ISSET_S(cpu, size, set)) cpus.insert(cpu);
      }
    }
    CPU_FREE(set);
  }
  return cpus;
}

std::set<int> parse_kernel_set(const std::string& text) {
  std::set<int> members;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0, last = 0;
    auto parsed = std::from_chars(at, end, first);
    last = first;
    if (parsed.ec == std::errc() && parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    if (parsed.ec != std::errc() || (parsed.ptr < end && *parsed.ptr != ',')) {
      throw Error("'{}' is not a list like 0-2,4", text);
    }
    for (int member = first; member <= last; ++member) members.insert(member);
    at = parsed.ptr + 1;
  }
  return members;
}

CpuTopology::CpuTopology(fs::path sysfs_root, CpuSet allowed)
    : root_(std::move(sysfs_root)), allowed_(std::move(allowed)) {}

std::set<int> CpuTopology::nodes() const { return parse_kernel_set(read_line(root_ / "devices/system/node/online")); }

CpuSet CpuTopology::cpus_of_node(int node) const {
  CpuSet cpus = parse_kernel_set(read_line(root_ / fmt::format("devices/system/node/node{}/cpulist", node)));
  std::erase_if(cpus, [&](int cpu) { return !allowed_.contains(cpu); });
  return cpus;
}

int CpuTopology::node_of_device(const std::string& pci_address) const {
  return std::max(0, read_int(root_ / "bus/pci/devices" / pci_address / "numa_node"));
}

fs::path CpuTopology::cpu_folder(int cpu) const { return root_ / fmt::format("devices/system/cpu/cpu{}", cpu); }

int CpuTopology::socket_of(int cpu) const { return read_int(cpu_folder(cpu) / "topology/physical_package_id"); }

int CpuTopology::core_of(int cpu) const { return first_in(cpu_folder(cpu) / "topology/thread_siblings_list"); }

int CpuTopology::core_complex_of(int cpu) const {
  int highest = -1, first = cpu;
  std::error_code ignored;
  for (const auto& cache : fs::directory_iterator(cpu_folder(cpu) / "cache", ignored)) {
    if (!cache.path().filename().string().starts_with("index")) continue;
    const std::string type = read_line(cache.path() / "type");
    const int level = read_int(cache.path() / "level");
    if ((type != "Data" && type != "Unified") || level <= highest) continue;
    highest = level;
    first = first_in(cache.path() / "shared_cpu_list");
  }
  return first;
}

}  // namespace cxxrun
