// Options of optimizer, learning-rate schedule, averaged weights and loss scaling. Policies give presets; the sections
// "optimizer", "scheduler", "ema" and "grad_scaler" override. No Torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/option_table.hpp"

namespace vla {

struct OptimizerOptions {
  std::string type = "adamw";
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double grad_clip_norm = 10;
  bool master_weights = true;

  void describe(cxxrun::OptionTable& table);
};

struct SchedulerOptions {
  std::string type = "constant";
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
  double decay_lr = 0;
  std::string name = "cosine";
  double lr_end = 1e-7;
  double power = 1;
  int64_t num_cycles = 1;
  std::string step_rules = {};
  double gamma = 0.1;
  int64_t step_size = 0;
  std::vector<int64_t> milestones = {};
  double start_factor = 1.0 / 3, end_factor = 1;
  double max_lr = 0;
  double pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  int64_t cooldown = 0;
  double min_lr = 0;

  void describe(cxxrun::OptionTable& table);
};

// The defaults are LeRobot's.
struct EmaOptions {
  bool enable = false;
  std::string type = "diffusers";
  double decay = 0.9999, min_decay = 0;
  bool use_ema_warmup = true;
  double inv_gamma = 1, power = 0.75;
  int64_t update_after_step = 0;

  void describe(cxxrun::OptionTable& table);
};

// The defaults are those of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;

  void describe(cxxrun::OptionTable& table);
};

// fp32 | tf32 | bf16-mixed | fp16-mixed | bf16-true.
std::vector<std::string> precision_names();

// One of them from the spellings of LeRobot, accelerate, Lightning and YAML recipes: "bf16", "torch.bfloat16", "bfp16",
// "no", "FP16", "16-mixed", …. Anything else is a UsageError that names `key` and the nearest name.
std::string parse_precision(std::string_view text, std::string_view key = "training.precision");

}  // namespace vla
