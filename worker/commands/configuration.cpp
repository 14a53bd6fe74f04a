#include "worker/commands/configuration.hpp"

#include "common/error.hpp"
#include "common/option_text.hpp"
#include "common/registry.hpp"
#include "worker/checkpoint/find_checkpoint.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/lerobot_state.hpp"
#include "worker/checkpoint/retention.hpp"
#include "worker/checkpoint/weights.hpp"
#include "worker/config_aliases.hpp"
#include "worker/run_plan.hpp"

namespace vla {
namespace {

// Fills configuration.policy for the type that the user chose, or that the pretrained policy has.
BoundPolicy bind_policy(Configuration& configuration, const PolicyChoice& choice) {
  // Weights alone do not say of which policy they are.
  const bool has_config = !choice.path.empty() && (choice.type.empty() || !std::filesystem::is_regular_file(choice.path));
  if (!has_config) {
    configuration.policy = cxxrun::find_in_registry(policy_registry(), choice.type, "policy.type").make_options();
  } else {
    PretrainedConfig pretrained = read_pretrained_config(find_pretrained_model(choice.path));
    if (!choice.type.empty() && choice.type != pretrained.type) {
      throw cxxrun::UsageError("policy.type={} but policy.path={} holds a policy of type {}; leave policy.type out", choice.type, choice.path,
                               pretrained.type);
    }
    configuration.config.policy.type = pretrained.type;
    configuration.policy = std::move(pretrained.options);
  }
  PolicyOptions& options = *configuration.policy;
  return {[&options](cxxrun::OptionTable& table) { options.describe(table); }, [&options] { return options.optimizer_preset(); },
          [&options] { return options.scheduler_preset(); }};
}

PolicyBinding binding_for(Configuration& configuration) {
  PolicyBinding binding;
  for (const PolicyEntry& entry : policy_registry()) binding.types.emplace_back(entry.name);
  binding.bind = [&configuration](const PolicyChoice& choice) { return bind_policy(configuration, choice); };
  return binding;
}

}  // namespace

std::unique_ptr<Configuration> load_configuration(const ConfigSources& sources) {
  auto configuration = std::make_unique<Configuration>();
  load_config(sources, binding_for(*configuration), configuration->config, configuration->table);
  return configuration;
}

void add_checkpoint(ConfigSources& sources, const std::filesystem::path& checkpoint) {
  if (is_lerobot_state(checkpoint)) {
    sources.checkpoint = resolve_aliases(read_lerobot_settings(checkpoint), sources.notes);
    sources.checkpoint.push_back({.name = "policy.path", .items = {(checkpoint / "pretrained_model").string()}, .source = checkpoint.string()});
    return;
  }
  sources.add_checkpoint(checkpoint / "training_state" / "config.yaml");
  // Its weights come from the checkpoint itself; the policy it once started from may be gone.
  std::erase_if(sources.checkpoint, [](const cxxrun::Setting& setting) { return setting.name == "policy.path"; });
}

std::string training_help(const ConfigSources& sources) {
  TrainConfig config;
  cxxrun::OptionTable table;
  config.describe(table);
  std::string text = "vla_worker train --config FILE [--OPTION=VALUE...]\n\n"
                     "Options stand in the YAML file (nested at the dots) or on the command line, which wins.\n\n";
  text += cxxrun::help_text(table);
  const auto wanted = sources.find("policy.type");
  for (const PolicyEntry& entry : policy_registry()) {
    if (wanted && *wanted != entry.name) continue;
    const auto options = entry.make_options();
    cxxrun::OptionTable policy_table;
    struct Section {
      PolicyOptions& options;
      void describe(cxxrun::OptionTable& t) { options.describe(t); }
    } section{*options};
    policy_table.section("policy", section);
    text += fmt::format("\nWith policy.type={} ({}):\n\n{}", entry.name, entry.help, cxxrun::help_text(policy_table));
  }
  return text;
}

RunPlace resolve_run_place(const ConfigSources& sources, int64_t launch_time, bool is_restart) {
  TrainConfig config;
  cxxrun::OptionTable table;
  config.describe(table);
  const auto is_wanted = [](const std::string& name) {
    return name == "output_dir" || name == "experiment_name" || name == "resume";
  };
  for (const auto* source : {&sources.yaml, &sources.environment, &sources.command_line}) {
    for (const cxxrun::Setting& setting : *source) {
      if (is_wanted(setting.name)) cxxrun::apply_setting(table, setting);
    }
  }
  const bool names_folder = !config.output_dir.empty();
  std::string resume = config.resume;
  if (resume.empty() && is_restart) resume = "auto";
  RunPlace place{names_folder ? config.output_dir : default_output_dir(config.experiment_name, launch_time), std::nullopt};
  if (resume == "true" && !names_folder) {
    throw cxxrun::UsageError("resume=true continues the newest checkpoint in output_dir, which is not set: add --output_dir=DIR, or name "
                             "the checkpoint with --resume=PATH");
  }
  place.checkpoint = find_checkpoint(resume, place.output_dir);
  if (place.checkpoint) {
    // <output_dir>/checkpoints/000123
    const auto checkpoint = std::filesystem::canonical(*place.checkpoint);
    if (!names_folder) place.output_dir = checkpoint.parent_path().parent_path();
    place.checkpoint = checkpoint;
  } else if (!list_checkpoints(place.output_dir / "checkpoints").empty()) {
    throw cxxrun::UsageError("{} already holds checkpoints: continue with --resume=true, or choose another --output_dir",
                             place.output_dir.string());
  }
  return place;
}

}  // namespace vla
