// What one GPU is doing, asked of NVIDIA's management library, which is loaded when it is first needed and may be absent.
#pragma once

namespace vla {

struct GpuStats {
  double utilisation = 0;  // percent of the last sample period in which a kernel ran
  double memory_gb = 0;  // in use by all processes, GiB
  double power_w = 0;
};

}  // namespace vla
