// What a configuration means on a given world: batch per rank, learning rate, length, threads, folders. Pure functions of
// their arguments, no Torch; what is impossible throws UsageError, what is doubtful becomes a warning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/train_config.hpp"

namespace vla {

// effective = samples of an optimizer step over all ranks, exact in every world: ranks pad with rows of weight 0 where it does
// not divide evenly.
struct BatchPlan {
  int64_t per_gpu = 0;  // rows of every micro-batch of every rank
  int64_t global = 0;  // samples of one forward pass over all ranks
  int64_t accumulation = 1;
  int64_t effective = 0;  // global * accumulation
  std::vector<std::string> warnings = {};
};
BatchPlan resolve_batch(int64_t batch_size, const std::string& mode, int64_t world_size, int64_t accumulation);

struct LrPlan {
  double base = 0, factor = 1, lr = 0;
  std::vector<std::string> warnings = {};
};
LrPlan resolve_lr(double base, const std::string& scaling, int64_t world_size, const std::string& batch_size_mode);

// The first limit reached; 0 = no limit; neither = 100000.
int64_t resolve_steps(int64_t steps, int64_t epochs, int64_t steps_per_epoch);

struct WorkersPlan {
  int64_t per_rank = 0, total = 0;  // total: of this node
  std::vector<std::string> warnings = {};
};
WorkersPlan resolve_workers(int64_t num_workers, int64_t local_world_size, int64_t cores);

// Episode numbers to train on and to validate on. `episode_tasks[i]` is the task of episode i of the selection. Held out are
// the last ones of every task; a task always keeps one to train on.
struct EpisodeSplit {
  std::vector<int64_t> training, validation;
};
EpisodeSplit split_episodes(const std::vector<int64_t>& episode_tasks, int64_t val_episodes, double eval_split);

// "outputs/20250115_123456" or "experiments/name_20250115_123456" in local time.
std::string default_output_dir(const std::string& experiment_name, int64_t launch_time);

}  // namespace vla
