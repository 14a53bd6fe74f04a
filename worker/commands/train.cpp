#include <cstdio>
#include <ctime>
#include <filesystem>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_text.hpp"
#include "worker/commands/command.hpp"
#include "worker/commands/configuration.hpp"
#include "worker/commands/training_run.hpp"
#include "worker/start_timing.hpp"
#include "worker/trainer.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;

void require_same_on_all_ranks(const cxxrun::World& world, const std::string& what, const std::string& value) {
  const std::string main = world.broadcast(value);
  if (main != value) throw cxxrun::Error("{} is '{}' on rank {} but '{}' on rank 0: all ranks need the same view of it", what, value, world.rank(), main);
}

void prepare_output(const fs::path& output_dir, const LoggingOptions& logging, const cxxrun::OptionTable& table, const ConfigSources& sources) {
  fs::create_directories(output_dir);
  cxxrun::open_log_file(logging.log_path(output_dir));
  const fs::path config = output_dir / "config.yaml";
  cxxrun::remove_leftovers_of(config);
  cxxrun::write_file_atomically(config, cxxrun::dump_yaml(table));
  for (const std::string& note : sources.notes) cxxrun::log_info("note: {}", note);
}

void print_continuation(const TrainConfig& config, const fs::path& output_dir, int64_t world_size) {
  const std::string steps = config.training.steps ? fmt::format(" --training.steps={}", 2 * config.training.steps) : "";
  cxxrun::log_info("checkpoint: {}", (output_dir / "checkpoints" / "last" / "pretrained_model").string());
  cxxrun::log_info("continue with: {} --nproc_per_node={} vla_worker --resume={}{}", (own_folder() / "cxxrun").string(), world_size,
                   (output_dir / "checkpoints" / "last").string(), steps);
}

int train_in_world(const ConfigSources& sources, Configuration& loaded, RunPlace place, const cxxrun::WorkerEnv& env,
                   ShutdownWatcher& shutdown) {
  TrainConfig& config = loaded.config;
  TrainingWorld place_among_ranks(config, env);
  const cxxrun::World& world = place_among_ranks.world;
  // Every rank says that it is there, whatever the log level of its lines otherwise.
  fmt::print("Distributed training: world_size={}, rank={}, local_rank={}, device={}, backend={}\n", world.size(), world.rank(),
             env.local_rank, world.device().str(), world.backend());
  std::fflush(stdout);
  // Ranks started at different seconds by a launcher that is not ours would name different folders.
  place.output_dir = world.broadcast(place.output_dir.string());
  require_same_on_all_ranks(world, "the checkpoint to resume", place.checkpoint.value_or("").string());
  config.output_dir = place.output_dir.string();
  if (world.is_main() && !config.dry_run) prepare_output(place.output_dir, config.logging, loaded.table, sources);

  const TrainingJob job{config, loaded.table, *loaded.policy, place.output_dir, place.checkpoint};
  Trainer trainer(job, world, shutdown, place_among_ranks.launcher);
  StartInfo start;
  start.config_path = sources.config_path;
  start.master_addr = env.master_addr;
  start.master_port = env.master_port;
  trainer.print_start(start);
  if (config.dry_run) {
    cxxrun::log_info("dry run: everything was built, no step is run");
    return 0;
  }
  const int exit_code = trainer.run();
  world.barrier();
  print_continuation(config, place.output_dir, world.size());
  return exit_code;
}

}  // namespace

int train_command(Arguments arguments) {
  const auto env = cxxrun::WorkerEnv::read();
  cxxrun::set_log_rank(env.rank);
  ConfigSources sources = read_config_sources(arguments, cxxrun::environment_variable);
  if (sources.wants_help) {
    fmt::print("{}", training_help(sources));
    return 0;
  }
  const int64_t launch_time = env.launch_time ? env.launch_time : std::time(nullptr);
  RunPlace place = resolve_run_place(sources, launch_time, env.restart_count > 0);
  if (place.checkpoint) add_checkpoint(sources, *place.checkpoint);
  const auto loaded = load_configuration(sources);
  loaded->config.output_dir = place.output_dir.string();
  if (loaded->config.dump_config) {
    if (env.rank == 0) fmt::print("{}", cxxrun::dump_yaml(loaded->table));
    return 0;
  }
  take_place_among_ranks(loaded->config, env, "train", arguments);
  ShutdownWatcher shutdown(env.control_fd);
  start_timing().mark("options");
  return train_in_world(sources, *loaded, std::move(place), env, shutdown);
}

}  // namespace vla
