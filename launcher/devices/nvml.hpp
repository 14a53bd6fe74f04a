// NVIDIA's GPUs in this machine, asked of the driver's management library (no CUDA context) by a process of its own, which
// leaves nothing in ours. What cannot be found out (no driver, no such device) is absent; Error if the driver does not answer.
// CXXRUN_FAKE_GPUS replaces it for tests: a count, or PCI addresses separated by commas.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"

namespace cxxrun {

int count_installed_gpus(const Environment& environment);

// At least as many as there are GPUs to use, from the driver's files in /dev: nothing is loaded.
int count_gpu_files(const Environment& environment);

// Where the devices are in sysfs ("0000:3b:00.0"), "" if unknown. Tokens are ordinals, which count in NVML's order, whole UUIDs
// or their beginnings, and MIG slices, which are where their GPU is.
std::vector<std::string> pci_addresses(const std::vector<std::string>& tokens, const Environment& environment);

}  // namespace cxxrun
