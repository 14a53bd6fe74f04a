#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_text.hpp"
#include "worker/commands/command.hpp"
#include "worker/commands/configuration.hpp"
#include "worker/trainer.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;

fs::path own_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

// --world_size N without a launcher: becomes `cxxrun --nproc_per_node N <this command>`. Returns only on failure.
void launch_ranks(const TrainConfig& config, Arguments arguments) {
  const std::string launcher = (own_folder() / "cxxrun").string();
  std::vector<std::string> command{launcher, fmt::format("--nproc_per_node={}", config.world_size)};
  if (!config.master_addr.empty()) command.push_back("--master_addr=" + config.master_addr);
  if (config.master_port) command.push_back(fmt::format("--master_port={}", config.master_port));
  command.push_back("--no-python");
  command.push_back(fs::read_symlink("/proc/self/exe").string());
  command.push_back("train");
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(launcher.c_str(), argv.data());
  throw cxxrun::errno_error(fmt::format("world_size={} needs {}", config.world_size, launcher));
}

void require_same_on_all_ranks(const cxxrun::World& world, const std::string& what, const std::string& value) {
  const std::string main = world.broadcast(value);
  if (main != value) throw cxxrun::Error("{} is '{}' on rank {} but '{}' on rank 0: all ranks need the same view of it", what, value, world.rank(), main);
}

void prepare_output(const fs::path& output_dir, const LoggingOptions& logging, const cxxrun::OptionTable& table, const ConfigSources& sources) {
  fs::create_directories(output_dir);
  cxxrun::open_log_file(logging.log_path(output_dir));
  cxxrun::write_file_atomically(output_dir / "config.yaml", cxxrun::dump_yaml(table));
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
  const cxxrun::World world(env, cxxrun::choose_device(config.device, env), {.backend = config.backend});
  // Every rank says that it is there, whatever the log level of its lines otherwise.
  fmt::print("Distributed training: world_size={}, rank={}, local_rank={}, device={}, backend={}\n", world.size(), world.rank(),
             env.local_rank, world.device().str(), world.backend());
  std::fflush(stdout);
  // Ranks started at different seconds by a launcher that is not ours would name different folders.
  place.output_dir = world.broadcast(place.output_dir.string());
  require_same_on_all_ranks(world, "the checkpoint to resume", place.checkpoint.value_or("").string());
  config.output_dir = place.output_dir.string();
  if (world.is_main() && !config.dry_run) prepare_output(place.output_dir, config.logging, loaded.table, sources);

  // One stream of our own for everything: the legacy default stream would keep a step from being captured as a graph.
  const c10::impl::VirtualGuardImpl streams(world.device().type());
  const c10::StreamGuard on_stream(world.device().is_cuda() ? streams.getStreamFromGlobalPool(world.device()) : streams.getStream(world.device()));
  cxxrun::ControlChannel launcher(env.control_fd);
  const TrainingJob job{config, loaded.table, *loaded.policy, place.output_dir, place.checkpoint};
  Trainer trainer(job, world, shutdown, launcher);
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
  if (!env.launched && loaded->config.world_size > 1) launch_ranks(loaded->config, arguments);
  if (env.launched && loaded->config.world_size > 0 && loaded->config.world_size != env.world_size) {
    throw cxxrun::UsageError("world_size={} but the launcher started {} ranks; leave world_size out", loaded->config.world_size, env.world_size);
  }
  ShutdownWatcher shutdown(env.control_fd);
  return train_in_world(sources, *loaded, std::move(place), env, shutdown);
}

}  // namespace vla
