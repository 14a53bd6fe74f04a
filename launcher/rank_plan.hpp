// What each rank of one attempt is started with: the environment contract of torchrun plus our own variables, and its
// arguments with the macros replaced. Pure: the same inputs give the same plan.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/devices/cpu_placement.hpp"
#include "launcher/options/options.hpp"
#include "launcher/program_path.hpp"
#include "launcher/rendezvous/rendezvous.hpp"

namespace cxxrun {

// What is fixed for the whole launch, attempts included.
struct LaunchPlan {
  LauncherOptions options;
  ResolvedProgram program;
  int local_ranks = 1;
  int64_t launch_time = 0;  // Unix seconds
  std::vector<CpuPlacement> placements = {};  // of each local rank; empty = nowhere in particular
  std::vector<std::string> devices = {};  // --virtual-local-rank: CUDA_VISIBLE_DEVICES of each local rank
  std::string watchdog_file = {};  // TORCHELASTIC_TIMER_FILE; "" = none
  // Set for ranks only where the user's environment has no value of its own.
  std::vector<std::pair<std::string, std::string>> defaults;
};

// Where one stream of a rank goes.
struct StreamPlan {
  bool console = true;
  std::string file = "";  // "" = none
  bool teed = false;  // to the file and the console, with torchrun's prefix

  bool operator==(const StreamPlan&) const = default;
};

struct RankPlan {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::string> argv = {};
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to, or replacing in, the launcher's own
  std::string error_file = {};
  StreamPlan out = {}, err = {};
  CpuPlacement placement = {};
};

// OMP_NUM_THREADS (the usable CPUs divided by the ranks) and TORCH_NCCL_ASYNC_ERROR_HANDLING.
std::vector<std::pair<std::string, std::string>> default_variables(int local_ranks, int usable_cpus,
                                                                   const Environment& environment);

// `attempt_folder`: where error files and logs go; "" = nowhere.
std::vector<RankPlan> plan_ranks(const LaunchPlan& launch, const RendezvousResult& meeting, int attempt,
                                 const std::string& attempt_folder);

// Replaces $local_rank and ${local_rank}, and $$ by $.
std::string substitute_macros(const std::string& argument, int local_rank);

}  // namespace cxxrun
