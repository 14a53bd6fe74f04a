#include "worker/commands/training_run.hpp"

#include <unistd.h>

#include "common/error.hpp"
#include "worker/start_timing.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;

// Returns only by an exception.
void launch_ranks(const TrainConfig& config, const char* command, Arguments arguments) {
  const std::string launcher = (own_folder() / "cxxrun").string();
  std::vector<std::string> words{launcher, fmt::format("--nproc_per_node={}", config.world_size)};
  if (!config.master_addr.empty()) words.push_back("--master_addr=" + config.master_addr);
  if (config.master_port) words.push_back(fmt::format("--master_port={}", config.master_port));
  words.push_back("--no-python");
  words.push_back(fs::read_symlink("/proc/self/exe").string());
  words.push_back(command);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(launcher.c_str(), argv.data());
  throw cxxrun::errno_error(fmt::format("world_size={} needs {}", config.world_size, launcher));
}

}  // namespace

fs::path own_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

void take_place_among_ranks(const TrainConfig& config, const cxxrun::WorkerEnv& env, const char* command, Arguments arguments) {
  if (!env.launched && config.world_size > 1) launch_ranks(config, command, arguments);
  if (env.launched && config.world_size > 0 && config.world_size != env.world_size) {
    throw cxxrun::UsageError("world_size={} but the launcher started {} ranks; leave world_size out", config.world_size, env.world_size);
  }
}

TrainingWorld::TrainingWorld(const TrainConfig& config, const cxxrun::WorkerEnv& env)
    : world(env, cxxrun::choose_device(config.device, env), {.backend = config.backend}),
      streams(world.device().type()),
      on_stream(world.device().is_cuda() ? streams.getStreamFromGlobalPool(world.device()) : streams.getStream(world.device())),
      launcher(env.control_fd) {
  start_timing().mark("process group");
}

}  // namespace vla
