#include "worker/run_plan.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>

#include "common/error.hpp"

namespace vla {

using cxxrun::UsageError;

BatchPlan resolve_batch(int64_t batch_size, const std::string& mode, int64_t world_size, int64_t accumulation) {
  const bool is_total = mode == "total";
  BatchPlan plan;
  plan.per_gpu = is_total ? (batch_size + world_size - 1) / world_size : batch_size;
  plan.global = is_total ? batch_size : batch_size * world_size;
  plan.accumulation = accumulation;
  plan.effective = plan.global * accumulation;
  if (plan.effective < accumulation * world_size) {
    plan.warnings.push_back(fmt::format(
        "training.batch_size={} is less than the {} ranks: some of them only compute padding; use at least {}",
        batch_size, world_size, world_size));
  } else if (plan.per_gpu * world_size != plan.global) {
    plan.warnings.push_back(
        fmt::format("training.batch_size={} does not divide by {} ranks: each computes {} rows, some of them padding "
                    "of weight 0; {} or {} would waste nothing",
                    batch_size, world_size, plan.per_gpu, (plan.per_gpu - 1) * world_size, plan.per_gpu * world_size));
  }
  return plan;
}

LrPlan resolve_lr(double base, const std::string& scaling, int64_t world_size, const std::string& batch_size_mode) {
  LrPlan plan{.base = base};
  const double ranks = static_cast<double>(world_size);
  if (scaling == "linear") plan.factor = ranks;
  if (scaling == "sqrt") plan.factor = std::sqrt(ranks);
  plan.lr = base * plan.factor;
  if (plan.factor != 1 && batch_size_mode == "total") {
    plan.warnings.push_back(
        fmt::format("training.lr_scaling={} with batch_size_mode=total: the effective batch does not grow with the "
                    "ranks, but the lr does",
                    scaling));
  }
  return plan;
}

int64_t resolve_steps(int64_t steps, int64_t epochs, int64_t steps_per_epoch) {
  constexpr int64_t kDefault = 100000;
  if (epochs == 0) return steps == 0 ? kDefault : steps;
  int64_t epoch_steps = 0;
  if (__builtin_mul_overflow(epochs, steps_per_epoch, &epoch_steps))
    throw UsageError("training.epochs={} is too many", epochs);
  return steps == 0 ? epoch_steps : std::min(steps, epoch_steps);
}

WorkersPlan resolve_workers(int64_t num_workers, int64_t local_world_size, int64_t cores) {
  constexpr int64_t kMost = 8;
  WorkersPlan plan;
  plan.per_rank = num_workers >= 0 ? num_workers : std::min(cores / local_world_size, kMost);
  plan.total = plan.per_rank * local_world_size;
  if (plan.total > 2 * cores) {
    plan.warnings.push_back(fmt::format(
        "training.num_workers={} on {} ranks makes {} decoding threads for {} cores; {} would do", plan.per_rank,
        local_world_size, plan.total, cores, std::max<int64_t>(cores / local_world_size, 1)));
  }
  return plan;
}

EpisodeSplit split_episodes(const std::vector<int64_t>& episode_tasks, int64_t val_episodes, double eval_split) {
  std::map<int64_t, int64_t> to_skip;  // episodes of a task that are still to be trained on
  for (const int64_t task : episode_tasks) ++to_skip[task];
  for (auto& [task, count] : to_skip) {
    const auto fraction = static_cast<int64_t>(std::lround(eval_split * static_cast<double>(count)));
    const int64_t wanted = eval_split > 0 ? std::max<int64_t>(fraction, 1) : val_episodes;
    count -= std::min(wanted, count - 1);
  }
  EpisodeSplit split;
  for (size_t i = 0; i < episode_tasks.size(); ++i) {
    auto& target = to_skip[episode_tasks[i]]-- > 0 ? split.training : split.validation;
    target.push_back(static_cast<int64_t>(i));
  }
  return split;
}

std::string default_output_dir(const std::string& experiment_name, int64_t launch_time) {
  const std::time_t time = launch_time;
  std::tm local = {};
  ::localtime_r(&time, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d_%H%M%S", &local);
  return experiment_name.empty() ? fmt::format("outputs/{}", stamp)
                                 : fmt::format("experiments/{}_{}", experiment_name, stamp);
}

}  // namespace vla
