// The environment contract between launcher and worker: which variables a rank is started with and what they mean
// (those of torchrun, plus CXXRUN_* of our own). The only place besides launcher/options that reads the environment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace cxxrun {

// Names of our own variables. Each holds a number: an inherited file descriptor, or seconds.
inline constexpr char kControlFdVariable[] = "CXXRUN_CONTROL_FD";  // SOCK_SEQPACKET: see control_channel.hpp
inline constexpr char kLaunchTimeVariable[] = "CXXRUN_LAUNCH_TIME";  // Unix seconds of the launch, equal in all attempts

struct WorkerEnv {
  int64_t rank = 0;
  int64_t local_rank = 0;
  int64_t world_size = 1;
  int64_t local_world_size = 1;
  int64_t group_rank = 0;  // node
  int64_t restart_count = 0;  // attempt
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 0;
  bool use_agent_store = false;  // the launcher serves the store: connect as a client, also on rank 0
  std::string error_file;  // where to write {"message": ...} before a failing exit; empty = nowhere
  int control_fd = -1;  // -1 = not started by cxxrun
  int64_t launch_time = 0;  // Unix seconds; 0 = not started by cxxrun
  bool launched = false;  // RANK and WORLD_SIZE were set

  // Reads and validates the process environment. Throws UsageError naming the variable and its value.
  // Without RANK/WORLD_SIZE: a world of one, unless SLURM_NTASKS or OMPI_COMM_WORLD_SIZE is above 1, which is an error that
  // names cxxrun (N worlds of one would each train alone and overwrite each other).
  static WorkerEnv read();
};

std::optional<std::string> environment_variable(const std::string& name);

}  // namespace cxxrun
