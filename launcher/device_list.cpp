#include "launcher/device_list.hpp"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cmath>

#include "common/error.hpp"
#include "common/scope_exit.hpp"
#include "launcher/cgroup.hpp"

namespace cxxrun {
namespace {

int ask_nvml() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return 0;
  const ScopeExit unload([&] { ::dlclose(library); });
  const auto init = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
  const auto count = reinterpret_cast<int (*)(unsigned*)>(::dlsym(library, "nvmlDeviceGetCount_v2"));
  const auto shutdown = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlShutdown"));
  unsigned devices = 0;
  if (!init || !count || !shutdown || init() != 0) return 0;
  if (count(&devices) != 0) devices = 0;
  shutdown();
  return static_cast<int>(devices);
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
  size_t start = 0;
  while (start <= list.size()) {
    const size_t comma = std::min(list.find(',', start), list.size());
    std::string token = list.substr(start, comma - start);
    token.erase(0, token.find_first_not_of(" \t"));
    token.erase(token.find_last_not_of(" \t") + 1);
    if (token.empty() || token[0] == '-') break;
    if (std::find(tokens.begin(), tokens.end(), token) != tokens.end()) return {};
    tokens.push_back(token);
    start = comma + 1;
  }
  return tokens;
}

int count_installed_gpus(const Environment& environment) {
  if (const auto fake = environment("CXXRUN_FAKE_GPUS")) return parse_python_int(*fake).value_or(0);
  return ask_nvml();
}

int count_usable_cpus() {
  // Machines with more CPUs than cpu_set_t holds make the call fail; the mask grows until it fits.
  int allowed = 1;
  for (int capacity = CPU_SETSIZE; capacity <= CPU_SETSIZE * 64; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const size_t size = CPU_ALLOC_SIZE(capacity);
    const bool fits = ::sched_getaffinity(0, size, set) == 0;
    if (fits) allowed = CPU_COUNT_S(size, set);
    CPU_FREE(set);
    if (fits) break;
  }
  return std::max(1, static_cast<int>(std::min<double>(allowed, std::ceil(cgroup_cpu_quota()))));
}

int count_local_ranks(const std::string& text, const Environment& environment) {
  const auto list = environment("CUDA_VISIBLE_DEVICES");
  if (const auto number = parse_python_int(text)) {
    if (*number < 1) throw UsageError("--nproc-per-node={} must be at least 1", text);
    const size_t devices = list ? device_tokens(*list).size() : 0;
    if (devices > 0 && static_cast<size_t>(*number) > devices) {
      throw UsageError(
          "--nproc-per-node={} but CUDA_VISIBLE_DEVICES={} names {} device{}: start at most {}, widen the list, or set "
          "it to the "
          "empty string to train on the CPU",
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

}  // namespace cxxrun
