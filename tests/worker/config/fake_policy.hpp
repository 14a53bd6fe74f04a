// Loads configurations with a policy that has two options and a preset that depends on one of them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/option_text.hpp"
#include "worker/train_config.hpp"

namespace vla {

struct FakePolicy {
  int64_t chunk_size = 100;
  double optimizer_lr = 1e-5;
  int64_t scheduler_warmup_steps = 0;  // 0: no preset
  // What other programs' spellings name.
  int64_t horizon = 16, n_obs_steps = 2, n_action_steps = 8, num_train_timesteps = 100;
  double beta_start = 1e-4, beta_end = 0.02;
  std::string beta_schedule = "linear", prediction_type = "epsilon";
  bool clip_sample = true;

  void describe(cxxrun::OptionTable& table) {
    table.add("chunk_size", chunk_size, "actions predicted at once").at_least(1);
    table.add("optimizer_lr", optimizer_lr, "preset of optimizer.lr").at_least(0);
    table.add("scheduler_warmup_steps", scheduler_warmup_steps, "preset of scheduler.warmup_steps").at_least(0);
    table.add("horizon", horizon, "");
    table.add("n_obs_steps", n_obs_steps, "");
    table.add("n_action_steps", n_action_steps, "");
    table.add("num_train_timesteps", num_train_timesteps, "");
    table.add("beta_start", beta_start, "");
    table.add("beta_end", beta_end, "");
    table.add("beta_schedule", beta_schedule, "");
    table.add("prediction_type", prediction_type, "");
    table.add("clip_sample", clip_sample, "");
  }
};

// A loaded configuration with everything that its table points into.
struct Loaded {
  FakePolicy policy;
  TrainConfig config;
  cxxrun::OptionTable table;

  std::string source(std::string_view name) { return table.find(name)->source; }
};

inline std::unique_ptr<Loaded> load(const ConfigSources& sources) {
  auto loaded = std::make_unique<Loaded>();
  FakePolicy& policy = loaded->policy;
  const auto bind = [&policy](const PolicyChoice&) {
    return BoundPolicy{[&policy](cxxrun::OptionTable& table) { policy.describe(table); },
                       [&policy] { return OptimizerOptions{.lr = policy.optimizer_lr}; },
                       [&policy]() -> std::optional<SchedulerOptions> {
                         if (policy.scheduler_warmup_steps == 0) return std::nullopt;
                         return SchedulerOptions{.type = "cosine", .warmup_steps = policy.scheduler_warmup_steps};
                       }};
  };
  load_config(sources, {.types = {"act", "linear"}, .bind = bind}, loaded->config, loaded->table);
  return loaded;
}

// Command-line arguments in addition to the two that are required.
inline ConfigSources read(std::vector<std::string> arguments,
                          const std::map<std::string, std::string>& environment = {}) {
  for (const char* required : {"--policy.type=act", "--dataset.root=/data"})
    arguments.insert(arguments.begin(), required);
  return read_config_sources(arguments, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

inline std::unique_ptr<Loaded> load(const std::vector<std::string>& arguments,
                                    const std::map<std::string, std::string>& environment = {}) {
  return load(read(arguments, environment));
}

}  // namespace vla
