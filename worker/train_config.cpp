#include "worker/train_config.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"
#include "common/yaml_config.hpp"
#include "worker/config_aliases.hpp"
#include "worker/dataset_parts.hpp"

namespace vla {

using cxxrun::OptionRow;
using cxxrun::OptionTable;
using cxxrun::Setting;
using cxxrun::UsageError;

void DatasetOptions::describe(OptionTable& table) {
  table.add("root", root, "folder of the dataset, or synthetic:… for made-up data").path();
  table
      .add("datasets", datasets,
           "instead of root, several datasets trained on together: a list of {path, weight, episodes}, or of "
           "'path=DIR;weight=0.5;episodes=0-9+12'; weights are shares of the samples, without them every frame counts the same")
      .path();
  table.add("repo_id", repo_id, "name of the dataset, kept in checkpoints; without root, looked up in LeRobot's cache (HF_LEROBOT_HOME); nothing is downloaded");
  table.add("episodes", episodes, "numbers of the episodes to use; empty = all").at_least(0);
  table
      .add("val_episodes", val_episodes,
           "of every task, this many episodes (the last ones) are held out for validation")
      .at_least(0);
  table.add("eval_split", eval_split, "instead of val_episodes: the fraction of every task's episodes to hold out")
      .at_least(0)
      .at_most(0.9);
  table.add("use_imagenet_stats", use_imagenet_stats,
            "normalize cameras with ImageNet's mean and deviation instead of the dataset's");
  table.add("tolerance_s", tolerance_s, "largest difference between a row's timestamp and its video frame's")
      .at_least(0)
      .in("seconds");
}

void PolicyChoice::describe(OptionTable& table) {
  table.add("type", type, "which policy to train");
  table.add("path", path, "pretrained policy to start from: a checkpoint, or its pretrained_model folder").path();
  table.add("rename_map", rename_map,
            "names that the policy has for the dataset's features: a list of 'observation.images.top=observation.images.camera1'");
}

void TrainingOptions::describe(OptionTable& table) {
  table.add("steps", steps, "optimizer steps to train; 0 = as many as epochs says, or 100000 where that is 0 too")
      .at_least(0)
      .in("steps");
  table.add("epochs", epochs, "passes over the data; training ends at the first limit reached; 0 = no limit")
      .at_least(0);
  table
      .add("batch_size", batch_size,
           "samples of one forward pass: over all ranks together, or of each rank (batch_size_mode)")
      .at_least(1)
      .at_most(1 << 20)
      .in("samples");
  table
      .add("batch_size_mode", batch_size_mode,
           "total: batch_size is split over the ranks; per_gpu: every rank takes batch_size, as with LeRobot")
      .one_of({"total", "per_gpu"});
  table.add("gradient_accumulation_steps", gradient_accumulation_steps, "forward passes of every optimizer step")
      .at_least(1)
      .at_most(1 << 20);
  table.add("seed", seed, "of initial weights, sample order, noise and dropout; the same on all ranks").at_least(0);
  table
      .add("lr_scaling", lr_scaling,
           "multiply the lr by the number of ranks or its root, unless it comes from the command line")
      .one_of({"none", "linear", "sqrt"});
  table
      .add("precision", precision,
           "fp32 | tf32 (matrix products in 10 bits) | bf16-mixed, fp16-mixed (parameters in float32, arithmetic in 16 bits; "
           "fp16 with a loss scale) | bf16-true (parameters in bfloat16 too)")
      .one_of(precision_names());
  table.add("dtype", dtype, "float64 instead of float32, to compare runs exactly; only with precision=fp32")
      .one_of({"float32", "float64"});
  table
      .add("on_non_finite", on_non_finite,
           "a step whose loss or gradient is NaN or infinite is never applied; then: stop with an error, or skip it and go on")
      .one_of({"stop", "skip"});
  table.add("activation_checkpointing", activation_checkpointing,
            "compute the layers' activations again in the backward pass instead of keeping them: less memory, about 1.3 times the time");
  table
      .add("frozen_cache", frozen_cache,
           "keep what parts that do not learn make of every sample, made once before training: vision = the vision tower's tokens; prefix = "
           "keys and values of all tokens of images and task, where the whole vision-language model is frozen; not with augmentation")
      .one_of({"off", "vision", "prefix"});
  table.add("frozen_cache_gb", frozen_cache_gb, "GPU memory for them; 0 = half of what is free; what does not fit lies in the machine's memory or in data.cache_dir")
      .in("GB")
      .at_least(0);
  table
      .add("num_workers", num_workers,
           "decoding threads of each rank; auto = the cores of the machine shared among its ranks, at most 8")
      .at_least(0)
      .at_most(256)
      .or_word("auto", -1);
  table.add("drop_last", drop_last, "leave out the short batch at an epoch's end instead of training on fewer samples");
  table.add("log_freq", log_freq, "a line of metrics every so many steps").at_least(1).in("steps");
  table.add("save_freq", save_freq, "a checkpoint every so many steps; 0 = only at the end").at_least(0).in("steps");
  table.add("save_epochs", save_epochs, "a checkpoint every so many epochs, instead of save_freq").at_least(0).in("epochs");
  table.add("val_freq", val_freq, "validate every so many steps; 0 = with every checkpoint").at_least(0).in("steps");
  table.add("keep_checkpoints", keep_checkpoints, "how many of the newest checkpoints to keep; 0 = all").at_least(0);
  table.add("keep_every", keep_every, "checkpoints at multiples of this many steps are kept whatever keep_checkpoints says; 0 = none")
      .at_least(0)
      .in("steps");
  table.add("find_unused_parameters", find_unused_parameters,
            "allow parameters that get no gradient in some steps (slower)");
  table.add("bucket_mb", bucket_mb, "gradients that are sent together; 0 = each parameter's alone").at_least(0).at_most(65536).in("MiB");
  table.add("first_bucket_mb", first_bucket_mb, "the same of those that backward computes first, which so start earlier")
      .at_least(0)
      .at_most(65536)
      .in("MiB");
  table.add("gradient_dtype", gradient_dtype, "in which gradients are sent and added up over the ranks; auto = that of their parameters")
      .one_of({"auto", "float32", "bfloat16"});
  table
      .add("shard_optimizer", shard_optimizer,
           "every rank updates a share of the parameters and gets the others (ZeRO stage 1); auto = in fast mode on several GPUs, from 150 million on, where it can")
      .one_of({"auto", "on", "off"});
}

void SpeedOptions::describe(OptionTable& table) {
  table
      .add("mode", mode,
           "reference: operation by operation as the reference has it; fast: fused kernels, which round elsewhere; auto: fast on GPUs")
      .one_of({"auto", "reference", "fast"});
  table
      .add("graph", graph,
           "run a whole step as one CUDA graph; auto: on GPUs in fast mode, unless something in the step cannot be captured")
      .one_of({"auto", "on", "off"});
  table.add("deterministic", deterministic,
            "prefer kernels that add up in a fixed order: the same seed gives the same bits where such kernels exist; slower");
  table
      .add("cudnn_trials", cudnn_trials,
           "algorithms of cuDNN that fast mode tries for each convolution in the first step, to keep the fastest; 0 = takes the one it suggests: the first step is "
           "done sooner")
      .at_least(0)
      .at_most(1000);
}

void TrainConfig::describe(OptionTable& table) {
  table.section("dataset", dataset);
  table.section("policy", policy);
  table.section("training", training);
  table.section("optimizer", optimizer);
  table.section("scheduler", scheduler);
  table.section("ema", ema);
  table.section("grad_scaler", grad_scaler);
  table.section("speed", speed);
  table.section("augment", augment);
  table.section("data", data);
  table.section("logging", logging);
  table
      .add("output_dir", output_dir,
           "where results go; empty = outputs/DATE_TIME, or experiments/NAME_DATE_TIME with a name")
      .path();
  table.add("experiment_name", experiment_name, "part of the output folder's name");
  table.add("device", device, "auto | cpu | cuda; cuda:N picks GPU N where there is a single rank");
  table.add("backend", backend, "how ranks talk; auto = nccl on GPUs, gloo on the CPU")
      .one_of({"auto", "gloo", "nccl"});
  table
      .add("resume", resume,
           "the checkpoint folder to continue from; true = the newest in output_dir, which must exist; auto = if there "
           "is one")
      .path()
      .one_of({"", "true", "auto"})
      .transient();
  table
      .add("resume_changed", resume_changed,
           "continue although seed, batch size or data changed since the checkpoint: the sequence of samples will not be that of one run")
      .transient();
  table
      .add("world_size", world_size,
           "start that many ranks through cxxrun; under cxxrun it must be the actual number; 0 = as started")
      .at_least(0)
      .transient();
  table.add("master_addr", master_addr, "with world_size: address of the first node, for cxxrun").transient();
  table.add("master_port", master_port, "with world_size: port of the first node, for cxxrun")
      .at_least(0)
      .at_most(65535)
      .transient();
  table.add("dry_run", dry_run, "build everything, run no step").transient();
  table.add("dump_config", dump_config, "print the resolved configuration and stop").transient();
}

namespace {

bool is_config_option(std::string_view name) {
  return name == "config" || name == "config_path" || name == "config_file" || name == "config_name";
}

bool is_cuda_with_index(std::string_view device) {
  return device.starts_with("cuda:") && device.size() > 5 && device.size() < 9 &&
         std::ranges::all_of(device.substr(5), [](char c) { return c >= '0' && c <= '9'; });
}

// Two spellings of one option in the same file would leave the value to chance.
void refuse_double_settings(const std::vector<Setting>& settings) {
  for (size_t i = 0; i < settings.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (settings[i].name == settings[j].name) {
        throw UsageError("{}: '{}' is already set at {}; keep one of them", settings[i].source, settings[i].name,
                         settings[j].source);
      }
    }
  }
}

void finish(TrainConfig& config, OptionTable& table) {
  const auto place = [&](const char* name) {
    const std::string& source = table.find(name)->source;
    return source.empty() ? std::string(name) : source + ": " + name;
  };
  if (dataset_parts(config.dataset).empty()) {
    throw UsageError("dataset.root is not set: give the folder of the dataset, for example --dataset.root=DIR, or its name, --dataset.repo_id=ORGANISATION/NAME");
  }
  if (!config.dataset.datasets.empty() && !config.dataset.episodes.empty()) {
    throw UsageError("{}: with dataset.datasets, the episodes stand in the list: 'path=DIR;episodes=0-9'", place("dataset.episodes"));
  }
  if (config.training.dtype == "float64" && config.training.precision != "fp32") {
    throw UsageError("{}=float64 is for exact comparisons and does not go with {}={}", place("training.dtype"), place("training.precision"),
                     config.training.precision);
  }
  if (config.dataset.val_episodes > 0 && config.dataset.eval_split > 0) {
    throw UsageError("{}={} and eval_split={} both hold out episodes; set one of them", place("dataset.val_episodes"),
                     config.dataset.val_episodes, config.dataset.eval_split);
  }
  if (config.device != "auto" && config.device != "cpu" && config.device != "cuda" &&
      !is_cuda_with_index(config.device)) {
    throw UsageError("{}='{}': expected auto, cpu, cuda or cuda:N", place("device"), config.device);
  }
  if (config.experiment_name.find('/') != std::string::npos) {
    throw UsageError("{}='{}' must not contain '/'; use output_dir to choose the folder", place("experiment_name"),
                     config.experiment_name);
  }
  if (table.find("optimizer.lr")->source.starts_with("command line") && config.training.lr_scaling != "none") {
    config.training.lr_scaling = "none";
    table.find("training.lr_scaling")->source = "not applied: optimizer.lr was given on the command line";
  }
}

}  // namespace

std::optional<std::string> ConfigSources::find(std::string_view name) const {
  for (const auto* source : {&command_line, &environment, &yaml, &checkpoint}) {
    for (auto setting = source->rbegin(); setting != source->rend(); ++setting) {
      if (setting->name == name && !setting->items.empty()) return setting->text();
    }
  }
  return std::nullopt;
}

void ConfigSources::add_checkpoint(const std::filesystem::path& config_yaml) {
  checkpoint = resolve_aliases(cxxrun::read_yaml_settings(config_yaml), notes);
}

ConfigSources read_config_sources(std::span<const std::string> arguments, const EnvironmentLookup& environment) {
  ConfigSources sources;
  std::vector<std::string> rest(arguments.begin(), arguments.end());
  sources.wants_help =
      std::erase_if(rest, [](const std::string& argument) { return argument == "--help" || argument == "-h"; }) > 0;

  TrainConfig defaults;
  OptionTable table;
  defaults.describe(table);
  const auto is_flag = [&](std::string_view name) {
    const OptionRow* row = table.find(name);
    return (row && std::holds_alternative<bool*>(row->value)) ||
           std::ranges::any_of(config_aliases(),
                               [&](const ConfigAlias& alias) { return alias.is_flag && name == alias.alias; });
  };
  std::vector<Setting> command_line = cxxrun::parse_command_line(rest, is_flag);
  for (Setting& setting : command_line) {
    if (!is_config_option(setting.name)) continue;
    // LeRobot names what it resumes by the configuration in the checkpoint.
    if (!setting.items.empty() && std::filesystem::path(setting.text()).filename() == "train_config.json") {
      setting.name = "checkpoint_path";
      continue;
    }
    if (setting.kind != Setting::Kind::kScalar || setting.text().empty()) {
      throw UsageError("command line: --{} needs a file: --config=FILE", setting.name);
    }
    sources.config_path = setting.text();
  }
  std::erase_if(command_line, [](const Setting& setting) { return is_config_option(setting.name); });
  sources.command_line = resolve_aliases(command_line, sources.notes);

  if (!sources.config_path.empty()) {
    sources.yaml = resolve_aliases(cxxrun::read_yaml_settings(sources.config_path), sources.notes);
    refuse_double_settings(sources.yaml);
  }

  std::vector<Setting> variables;
  for (const EnvironmentAlias& row : environment_aliases()) {
    const auto value = environment(row.variable);
    if (!value || value->empty()) continue;
    variables.push_back(
        {.name = row.name, .items = {*value}, .source = fmt::format("environment variable {}", row.variable)});
    sources.notes.push_back(
        fmt::format("environment variable {}={} is read as --{}={}", row.variable, *value, row.name, *value));
  }
  sources.environment = resolve_aliases(variables, sources.notes);
  return sources;
}

void load_config(const ConfigSources& sources, const PolicyBinding& policies, TrainConfig& config, OptionTable& table) {
  std::vector<std::string_view> spellings;
  for (const ConfigAlias& alias : config_aliases()) spellings.push_back(alias.alias);
  const auto apply_where = [&](auto wanted) {
    for (const auto* source : {&sources.checkpoint, &sources.yaml, &sources.environment, &sources.command_line}) {
      for (const Setting& setting : *source) {
        if (wanted(setting.name)) cxxrun::apply_setting(table, setting, spellings);
      }
    }
  };
  const auto is_choice = [](const std::string& name) { return name == "policy.type" || name == "policy.path"; };

  config.describe(table);
  table.find("policy.type")->one_of(policies.types);
  table.find("policy.path")->one_of(policies.types);  // recipes with one variable for both write policy.path=act
  apply_where(is_choice);
  PolicyChoice& policy = config.policy;
  if (std::ranges::find(policies.types, policy.path) != policies.types.end())
    policy.type = std::exchange(policy.path, "");
  if (policy.type.empty() && policy.path.empty()) {
    throw UsageError("policy.type is not set (known: {}): choose one with --policy.type=NAME",
                     fmt::join(policies.types, ", "));
  }

  // The preset depends on the policy's options, and everything else may override the preset.
  BoundPolicy bound = policies.bind(policy);
  table.section("policy", bound);
  apply_where([&](const std::string& name) { return name.starts_with("policy.") && !is_choice(name); });
  config.optimizer = bound.optimizer_preset();
  const std::optional<SchedulerOptions> scheduler = bound.scheduler_preset();
  if (scheduler) config.scheduler = *scheduler;
  for (OptionRow& row : table.rows()) {
    if (row.name.starts_with("optimizer.") || (scheduler && row.name.starts_with("scheduler."))) row.source = "policy preset";
  }
  apply_where([](const std::string& name) { return !name.starts_with("policy."); });
  finish(config, table);
}

}  // namespace vla
