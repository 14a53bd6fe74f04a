// The configuration of a command, bound to the policy it names: what load_config() needs of the policies, and everything its table
// points into.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "common/option_table.hpp"
#include "worker/policies/policy.hpp"
#include "worker/train_config.hpp"

namespace vla {

struct Configuration {
  TrainConfig config;
  std::unique_ptr<PolicyOptions> policy;
  cxxrun::OptionTable table;  // describes `config` and `policy`
};

// On the heap, because the table points into it.
std::unique_ptr<Configuration> load_configuration(const ConfigSources& sources);

// The configuration that a checkpoint was trained with joins the sources, below YAML and command line.
void add_checkpoint(ConfigSources& sources, const std::filesystem::path& checkpoint);

// Every option of the training and of the policy that the sources name, or of all policies.
std::string training_help(const ConfigSources& sources);

// Where a run's results go and whether it continues one; decided before the configuration, which may come from the checkpoint.
struct RunPlace {
  std::filesystem::path output_dir;
  std::optional<std::filesystem::path> checkpoint;
};
// `launch_time`: Unix seconds, names the default folder. `is_restart`: an earlier attempt may have left a checkpoint.
RunPlace resolve_run_place(const ConfigSources& sources, int64_t launch_time, bool is_restart);

}  // namespace vla
