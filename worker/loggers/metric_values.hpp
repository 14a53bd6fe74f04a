// The numbers of a StepMetrics by name, in the order in which they are written: one list for all loggers. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "worker/loggers/logger.hpp"

namespace vla {

// Mean utilisation, largest memory, power of all.
GpuStats together(const std::vector<GpuStats>& gpus);

// Without the step itself, the ids of samples and what is unknown. Of several GPUs: what they are together(), then each one's
// utilisation ("gpu_util_rank0").
std::vector<std::pair<std::string, double>> metric_values(const StepMetrics& metrics);

// "train/loss", "val/action_error" for "val_action_error", "gpu/util" for "gpu_util".
std::string metric_tag(const std::string& name);

}  // namespace vla
