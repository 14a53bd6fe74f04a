// The configuration of a training: every option with its default, and the six sources that override it in order:
// default < policy preset < checkpoint (on resume) < YAML < environment < command line. Free of LibTorch: the caller binds the
// policy's own options ("policy" section) when policy.type is known. Wrong input throws UsageError naming place, key and value.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/option_parse.hpp"
#include "common/option_table.hpp"
#include "worker/augment_options.hpp"
#include "worker/data/options.hpp"
#include "worker/loggers/options.hpp"
#include "worker/optim/options.hpp"

namespace vla {

struct DatasetOptions {
  std::string root;
  std::vector<std::string> datasets;  // see worker/dataset_parts.hpp
  std::string repo_id;
  std::vector<int64_t> episodes;
  int64_t val_episodes = 0;
  double eval_split = 0;
  bool use_imagenet_stats = true;
  double tolerance_s = 1e-4;

  void describe(cxxrun::OptionTable& table);
};

// Which policy; the options of its type stand in the same section and are the policy's own.
struct PolicyChoice {
  std::string type;
  std::string path;  // a checkpoint's pretrained_model folder to start from
  std::vector<std::string> rename_map;  // "dataset_key=policy_key"

  void describe(cxxrun::OptionTable& table);
};

struct TrainingOptions {
  int64_t steps = 0;
  int64_t epochs = 0;
  int64_t batch_size = 8;
  std::string batch_size_mode = "total";
  int64_t gradient_accumulation_steps = 1;
  int64_t seed = 1000;
  std::string lr_scaling = "none";
  std::string precision = "fp32";
  std::string dtype = "float32";
  std::string on_non_finite = "stop";
  bool activation_checkpointing = false;
  std::string frozen_cache = "off";
  double frozen_cache_gb = 0;
  int64_t num_workers = -1;
  bool drop_last = false;
  int64_t log_freq = 200;
  int64_t save_freq = 20000;
  int64_t save_epochs = 0;
  int64_t val_freq = 0;
  int64_t keep_checkpoints = 0;
  int64_t keep_every = 0;
  bool find_unused_parameters = false;
  double bucket_mb = 25;
  double first_bucket_mb = 1;
  std::string gradient_dtype = "auto";
  std::string shard_optimizer = "auto";

  void describe(cxxrun::OptionTable& table);
};

// How a step is computed; what it computes is the same within rounding.
struct SpeedOptions {
  std::string mode = "auto";
  std::string graph = "auto";
  bool deterministic = false;
  int64_t cudnn_trials = 4;

  bool is_fast(bool on_gpu) const { return mode == "fast" || (mode == "auto" && on_gpu); }
  void describe(cxxrun::OptionTable& table);
};

struct TrainConfig {
  DatasetOptions dataset;
  PolicyChoice policy;
  TrainingOptions training;
  OptimizerOptions optimizer;
  SchedulerOptions scheduler;
  EmaOptions ema;
  GradScalerOptions grad_scaler;
  SpeedOptions speed;
  AugmentOptions augment;
  data::DataOptions data;
  LoggingOptions logging;
  std::string output_dir;
  std::string experiment_name;
  std::string device = "auto";
  std::string backend = "auto";
  // About this start only, not stored with the training:
  std::string resume;  // "", "true", "auto" or a checkpoint's folder
  bool resume_changed = false;
  int64_t world_size = 0;
  std::string master_addr;
  int64_t master_port = 0;
  bool dry_run = false;
  bool dump_config = false;

  void describe(cxxrun::OptionTable& table);
};

// What the user gave, as settings with canonical names, before any of it is applied.
struct ConfigSources {
  std::vector<cxxrun::Setting> checkpoint, yaml, environment, command_line;
  std::string config_path;  // --config; empty = none
  bool wants_help = false;
  std::vector<std::string> notes;  // for the user to know: options without effect, variables that were read

  // Of `name`, the text in the source of highest precedence that has it.
  std::optional<std::string> find(std::string_view name) const;
  // The resolved configuration that the checkpoint to resume was trained with.
  void add_checkpoint(const std::filesystem::path& config_yaml);
};

using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& variable)>;

ConfigSources read_config_sources(std::span<const std::string> arguments, const EnvironmentLookup& environment);

// The policy's side of the "policy" section, made by the caller for a type and path.
struct BoundPolicy {
  std::function<void(cxxrun::OptionTable&)> describe;
  // Called when the policy's options are final.
  std::function<OptimizerOptions()> optimizer_preset;
  std::function<std::optional<SchedulerOptions>()> scheduler_preset;
};

struct PolicyBinding {
  std::vector<std::string> types;
  std::function<BoundPolicy(const PolicyChoice&)> bind;
};

// Fills `config` and the policy's options. `table` must be empty; it then describes both (and points into them). An optimizer.lr
// from the command line is final: lr_scaling becomes none.
void load_config(const ConfigSources& sources, const PolicyBinding& policies, TrainConfig& config,
                 cxxrun::OptionTable& table);

}  // namespace vla
