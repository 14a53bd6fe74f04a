// Options of optimizer and learning-rate schedule. Policies give presets; the "optimizer" and "scheduler" sections override.
#pragma once

#include <cstdint>
#include <string>

#include "common/option_table.hpp"

namespace vla {

struct OptimizerOptions {
  std::string type = "adamw";
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double grad_clip_norm = 10;

  void describe(cxxrun::OptionTable& table);
};

struct SchedulerOptions {
  std::string type = "constant";
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
  double decay_lr = 0;

  void describe(cxxrun::OptionTable& table);
};

}  // namespace vla
