#include "launcher/devices/device_list.hpp"

#include <algorithm>
#include <cmath>

#include "common/error.hpp"
#include "launcher/devices/cgroup.hpp"
#include "launcher/devices/cpu_topology.hpp"
#include "launcher/devices/nvml.hpp"

namespace cxxrun {
namespace {

// The entries of a list as they are, without blanks around them; at least one.
std::vector<std::string> split_devices(const std::string& list) {
  std::vector<std::string> entries;
  for (size_t start = 0; start <= list.size();) {
    const size_t comma = std::min(list.find(',', start), list.size());
    std::string entry = list.substr(start, comma - start);
    entry.erase(0, entry.find_first_not_of(" \t"));
    entry.erase(entry.find_last_not_of(" \t") + 1);
    entries.push_back(std::move(entry));
    start = comma + 1;
  }
  return entries;
}

int count_visible_gpus(const Environment& environment) {
  const auto list = environment("CUDA_VISIBLE_DEVICES");
  if (!list) return count_installed_gpus(environment);
  const std::vector<std::string> tokens = device_tokens(*list);
  const auto is_ordinal = [](const std::string& token) { return parse_python_int(token).has_value(); };
  if (tokens.empty() || !std::all_of(tokens.begin(), tokens.end(), is_ordinal)) return static_cast<int>(tokens.size());
  // An ordinal that does not exist ends the list; without NVML nobody can tell.
  const int installed = count_installed_gpus(environment);
  if (installed == 0) return static_cast<int>(tokens.size());
  const auto missing = std::find_if(tokens.begin(), tokens.end(),
                                    [&](const auto& token) { return *parse_python_int(token) >= installed; });
  return static_cast<int>(missing - tokens.begin());
}

}  // namespace

std::vector<std::string> device_tokens(const std::string& list) {
  std::vector<std::string> tokens;
  for (std::string& token : split_devices(list)) {
    if (token.empty() || token[0] == '-') break;
    if (std::find(tokens.begin(), tokens.end(), token) != tokens.end()) return {};
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::vector<std::string> visible_gpus(const Environment& environment) {
  if (const auto list = environment("CUDA_VISIBLE_DEVICES")) return device_tokens(*list);
  std::vector<std::string> ordinals;
  for (int gpu = 0, end = count_installed_gpus(environment); gpu < end; ++gpu) ordinals.push_back(std::to_string(gpu));
  return ordinals;
}

int count_usable_cpus() {
  return std::max(1, static_cast<int>(std::min<double>(static_cast<double>(allowed_cpus().size()),
                                                       std::ceil(cgroup_cpu_quota()))));
}

int count_local_ranks(const std::string& text, const Environment& environment) {
  const auto list = environment("CUDA_VISIBLE_DEVICES");
  if (const auto number = parse_python_int(text)) {
    if (*number < 1) throw UsageError("--nproc-per-node={} must be at least 1", text);
    const size_t devices = list ? device_tokens(*list).size() : 0;
    if (devices > 0 && static_cast<size_t>(*number) > devices) {
      throw UsageError(
          "--nproc-per-node={} but CUDA_VISIBLE_DEVICES={} names {} device{}: start at most {}, widen the list, or set "
          "it to the empty string to train on the CPU",
          *number, *list, devices, devices == 1 ? "" : "s", devices);
    }
    return *number;
  }
  if (text == "cpu") return count_usable_cpus();
  if (text != "gpu" && text != "auto") {
    throw UsageError("--nproc-per-node={} is not supported: give a number, gpu, cpu or auto", text);
  }
  const int gpus = count_visible_gpus(environment);
  if (gpus > 0) return gpus;
  if (text == "auto") return count_usable_cpus();
  throw UsageError("--nproc-per-node=gpu but no GPU is visible ({}): give a number of ranks to train on the CPU",
                   list ? "CUDA_VISIBLE_DEVICES='" + *list + "'" : std::string("no NVIDIA driver or device found"));
}

std::string few_gpus_warning(const std::string& nproc_per_node, const Environment& environment) {
  const auto ranks = parse_python_int(nproc_per_node);
  if (!ranks || environment("CUDA_VISIBLE_DEVICES")) return "";
  const int gpus = count_gpu_files(environment);
  if (gpus == 0 || *ranks <= gpus) return "";
  return fmt::format("--nproc-per-node={} but this machine has {} GPU{}: training on GPUs will fail or share them",
                     *ranks, gpus, gpus == 1 ? "" : "s");
}

std::vector<std::string> rank_devices(int local_ranks, const Environment& environment) {
  const auto list = environment("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> devices;
  if (!list) {
    for (int local_rank = 0; local_rank < local_ranks; ++local_rank) devices.push_back(std::to_string(local_rank));
    return devices;
  }
  devices = split_devices(*list);
  if (devices[0].empty() || devices[0][0] == '-') devices.assign(static_cast<size_t>(local_ranks), devices[0]);
  if (devices.size() < static_cast<size_t>(local_ranks)) {
    throw UsageError("--virtual-local-rank needs a device for each of the {} ranks but CUDA_VISIBLE_DEVICES={} names {}",
                     local_ranks, *list, devices.size());
  }
  devices.resize(static_cast<size_t>(local_ranks));
  return devices;
}

}  // namespace cxxrun
