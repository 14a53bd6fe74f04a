#include "launcher/devices/numa_binding.hpp"

#include <algorithm>
#include <map>

#include "common/error.hpp"
#include "launcher/devices/device_list.hpp"
#include "launcher/devices/nvml.hpp"

namespace cxxrun {
namespace {

// Where a GPU is, and its place among the visible GPUs of its node.
struct GpuSeat {
  int node = 0;
  size_t position = 0;
  size_t neighbours = 0;  // itself included
};

// `group_of` names the group of a CPU.
template <class GroupOf>
std::map<int, CpuSet> group_cpus(const CpuSet& cpus, GroupOf group_of) {
  std::map<int, CpuSet> groups;
  for (const int cpu : cpus) groups[group_of(cpu)].insert(cpu);
  return groups;
}

CpuSet cpus_of_socket(const CpuTopology& topology, int node, std::vector<int>& nodes) {
  CpuSet all;
  const int socket = topology.socket_of(*topology.cpus_of_node(node).begin());
  for (const int other : topology.nodes()) {
    const CpuSet cpus = topology.cpus_of_node(other);
    if (cpus.empty() || topology.socket_of(*cpus.begin()) != socket) continue;
    all.insert(cpus.begin(), cpus.end());
    nodes.push_back(other);
  }
  return all;
}

// The node's cores in order, cut into one piece a GPU; the first pieces are a core longer if it does not come out even.
CpuSet exclusive_cpus(const CpuTopology& topology, const CpuSet& node_cpus, const GpuSeat& seat) {
  const auto cores = group_cpus(node_cpus, [&](int cpu) { return topology.core_of(cpu); });
  if (cores.size() < seat.neighbours) {
    throw UsageError(
        "--numa-binding=exclusive: the {} GPUs of NUMA node {} have {} cores to share: use node, or fewer GPUs",
        seat.neighbours, seat.node, cores.size());
  }
  const size_t share = cores.size() / seat.neighbours, longer = cores.size() % seat.neighbours;
  const size_t start = seat.position * share + std::min(seat.position, longer);
  const size_t length = share + (seat.position < longer ? 1 : 0);
  CpuSet cpus;
  auto core = std::next(cores.begin(), static_cast<std::ptrdiff_t>(start));
  for (size_t i = 0; i < length; ++i, ++core) cpus.insert(core->second.begin(), core->second.end());
  return cpus;
}

// The largest core complex for the node's first GPU, and so on, again from the first when they are used up.
CpuSet core_complex_cpus(const CpuTopology& topology, const CpuSet& node_cpus, const GpuSeat& seat) {
  std::vector<CpuSet> complexes;
  for (auto& [first, cpus] : group_cpus(node_cpus, [&](int cpu) { return topology.core_complex_of(cpu); })) {
    complexes.push_back(cpus);
  }
  std::stable_sort(complexes.begin(), complexes.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return complexes[seat.position % complexes.size()];
}

CpuPlacement place(NumaBinding binding, const CpuTopology& topology, const GpuSeat& seat) {
  CpuSet cpus = topology.cpus_of_node(seat.node);
  if (cpus.empty()) {
    throw UsageError("--numa-binding={}: no CPU of NUMA node {}, where a GPU is, may be used by this process (taskset, cgroup)",
                     name_of(binding), seat.node);
  }
  std::vector<int> nodes;
  if (binding == NumaBinding::kSocket) cpus = cpus_of_socket(topology, seat.node, nodes);
  if (binding == NumaBinding::kExclusive) cpus = exclusive_cpus(topology, cpus, seat);
  if (binding == NumaBinding::kCoreComplex) cpus = core_complex_cpus(topology, cpus, seat);
  if (nodes.empty()) nodes = {seat.node};
  return {.cpus = {cpus.begin(), cpus.end()}, .memory_nodes = std::move(nodes)};
}

std::vector<CpuPlacement> place_all(NumaBinding binding, size_t ranks, const Environment& environment,
                                    const CpuTopology& topology) {
  const std::vector<std::string> gpus = visible_gpus(environment);
  if (gpus.empty()) {
    throw UsageError("--numa-binding={} places ranks near their GPUs but no GPU is visible: leave it out or use auto",
                     name_of(binding));
  }
  if (gpus.size() < ranks) {
    throw UsageError("--numa-binding={} needs a GPU for each of the {} ranks but {} {} visible", name_of(binding), ranks,
                     gpus.size(), gpus.size() == 1 ? "is" : "are");
  }
  const std::vector<std::string> addresses = pci_addresses(gpus, environment);
  const auto unknown = std::find(addresses.begin(), addresses.end(), "");
  if (unknown != addresses.end()) {
    throw UsageError("--numa-binding={}: the NVIDIA driver does not say where GPU '{}' is: leave it out or use auto",
                     name_of(binding), gpus[static_cast<size_t>(unknown - addresses.begin())]);
  }
  std::vector<GpuSeat> seats;
  std::map<int, size_t> gpus_of_node;
  for (const std::string& address : addresses) {
    const int node = topology.node_of_device(address);
    seats.push_back({.node = node, .position = gpus_of_node[node]++});
  }
  std::vector<CpuPlacement> placements;
  for (size_t rank = 0; rank < ranks; ++rank) {
    seats[rank].neighbours = gpus_of_node[seats[rank].node];
    placements.push_back(place(binding, topology, seats[rank]));
  }
  return placements;
}

}  // namespace

std::vector<CpuPlacement> place_ranks(NumaBinding binding, int local_ranks, const Environment& environment,
                                      const CpuTopology& topology) {
  const auto ranks = static_cast<size_t>(local_ranks);
  if (binding == NumaBinding::kNone) return {};
  if (binding != NumaBinding::kAuto) return place_all(binding, ranks, environment, topology);
  try {
    if (topology.nodes().size() < 2) return {};
    return place_all(NumaBinding::kNode, ranks, environment, topology);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace cxxrun
