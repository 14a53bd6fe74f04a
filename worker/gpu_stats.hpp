// What one GPU is doing, asked of the driver's management library (NVML), which is loaded at run time and may be absent: then, and
// for a device that it does not know, nothing is known. Never throws. For one thread; NVML itself keeps a thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace vla {

// NaN where the driver does not tell (the utilisation of a MIG slice).
struct GpuStats {
  double utilisation = 0;  // percent of the driver's last sample period, at most a second, in which a kernel ran
  double memory_gb = 0;  // in use, by all processes, GiB
  double power_w = 0;
};

class GpuMonitor {
 public:
  // `pci_bus_id` as cudaDeviceGetPCIBusId() gives it: "0000:3b:00.0". Ordinals of CUDA and of NVML may differ.
  explicit GpuMonitor(const std::string& pci_bus_id, const char* library = "libnvidia-ml.so.1");
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;
  ~GpuMonitor();

  // Asks at most once a second, and says the same again in between.
  std::optional<GpuStats> read();

 private:
  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const;

  void* library_;
  void* device_ = nullptr;
  bool ready_ = false;
  std::optional<GpuStats> last_;
  std::chrono::steady_clock::time_point next_query_;
};

}  // namespace vla
