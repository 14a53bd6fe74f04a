#include "worker/gpu_stats.hpp"

#include <dlfcn.h>

#include <cmath>
#include <csignal>

namespace vla {
namespace {

struct Utilization {  // nvmlUtilization_t
  unsigned gpu, memory;
};
struct Memory {  // nvmlMemory_v2_t; that of version 1 counts the driver's reserve as used
  unsigned version = sizeof(Memory) | 2U << 24;
  unsigned long long total = 0, reserved = 0, free = 0, used = 0;
};

}  // namespace

// All functions of NVML return 0 for success.
template <class... Arguments>
bool GpuMonitor::call(const char* name, Arguments... arguments) const {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
  return function && function(arguments...) == 0;
}

GpuMonitor::GpuMonitor(const std::string& pci_bus_id, const char* library) : library_(::dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  if (!library_) return;
  // The thread that NVML starts must not be the one that gets our signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  ready_ = call("nvmlInit_v2");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (ready_ && !call("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &device_)) device_ = nullptr;
}

GpuMonitor::~GpuMonitor() {
  if (ready_) call("nvmlShutdown");
  if (library_) ::dlclose(library_);
}

std::optional<GpuStats> GpuMonitor::read() {
  const auto now = std::chrono::steady_clock::now();
  if (!device_ || now < next_query_) return last_;
  next_query_ = now + std::chrono::seconds(1);
  Utilization utilization{};
  Memory memory;
  unsigned milliwatts = 0;
  const bool has_utilization = call("nvmlDeviceGetUtilizationRates", device_, &utilization);
  const bool has_memory = call("nvmlDeviceGetMemoryInfo_v2", device_, &memory);
  const bool has_power = call("nvmlDeviceGetPowerUsage", device_, &milliwatts);
  last_.reset();
  if (has_utilization || has_memory || has_power) {
    last_ = {.utilisation = has_utilization ? utilization.gpu : NAN,
             .memory_gb = has_memory ? static_cast<double>(memory.used) / (1 << 30) : NAN,
             .power_w = has_power ? milliwatts / 1000.0 : NAN};
  }
  return last_;
}

}  // namespace vla
