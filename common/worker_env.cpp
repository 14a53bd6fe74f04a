#include "common/worker_env.hpp"

#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "common/error.hpp"

namespace cxxrun {
namespace {

int64_t integer_variable(const std::string& name, int64_t fallback, int64_t minimum) {
  const auto text = environment_variable(name);
  if (!text || text->empty()) return fallback;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < minimum) {
    throw UsageError("environment variable {}='{}' is not an integer of at least {}", name, *text, minimum);
  }
  return value;
}

void refuse_foreign_launchers() {
  for (const char* name : {"SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const int64_t tasks = integer_variable(name, 1, 0);
    if (tasks > 1) {
      throw UsageError(
          "{}={} but RANK and WORLD_SIZE are not set: {} processes would each train alone. Start the ranks with cxxrun, "
          "for example: cxxrun --nproc_per_node={} vla_worker --config …",
          name, tasks, tasks, tasks);
    }
  }
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

WorkerEnv WorkerEnv::read() {
  WorkerEnv env;
  env.launched = environment_variable("RANK") && environment_variable("WORLD_SIZE");
  env.error_file = environment_variable("TORCHELASTIC_ERROR_FILE").value_or("");
  env.control_fd = static_cast<int>(integer_variable(kControlFdVariable, -1, -1));
  env.launch_time = integer_variable(kLaunchTimeVariable, 0, 0);
  if (!env.launched) {
    refuse_foreign_launchers();
    return env;
  }
  env.world_size = integer_variable("WORLD_SIZE", 1, 1);
  env.rank = integer_variable("RANK", 0, 0);
  env.local_rank = integer_variable("LOCAL_RANK", env.rank, 0);
  env.local_world_size = integer_variable("LOCAL_WORLD_SIZE", env.world_size, 1);
  env.group_rank = integer_variable("GROUP_RANK", 0, 0);
  env.restart_count = integer_variable("TORCHELASTIC_RESTART_COUNT", 0, 0);
  env.master_addr = environment_variable("MASTER_ADDR").value_or("127.0.0.1");
  env.master_port = integer_variable("MASTER_PORT", 0, 0);
  env.use_agent_store = environment_variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (env.rank >= env.world_size) throw UsageError("RANK={} must be below WORLD_SIZE={}", env.rank, env.world_size);
  if (env.world_size > 1 && env.master_port == 0) throw UsageError("MASTER_PORT must be set when WORLD_SIZE={}", env.world_size);
  return env;
}

}  // namespace cxxrun
