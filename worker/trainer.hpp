// The training loop and everything it is made of, in the order in which data flows: config, dataset, batch, policy, loss, DDP,
// optimizer, checkpoint and log. One per process, used by one thread; all ranks make it and run it alike.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/control_channel.hpp"
#include "worker/checkpoint/checkpoint.hpp"
#include "worker/data/sampler.hpp"
#include "worker/distributed/ddp.hpp"
#include "worker/distributed/process_group.hpp"
#include "worker/evaluation.hpp"
#include "worker/loggers/logger.hpp"
#include "worker/metric_window.hpp"
#include "worker/optim/lr_schedule.hpp"
#include "worker/optim/optimizer.hpp"
#include "worker/policies/normalizer.hpp"
#include "worker/run_plan.hpp"
#include "worker/step_agreement.hpp"
#include "worker/training_data.hpp"

namespace vla {

// What to train, resolved: the same on all ranks.
struct TrainingJob {
  const TrainConfig& config;
  const cxxrun::OptionTable& table;  // describes `config` and `policy`; stored in checkpoints
  const PolicyOptions& policy;
  std::filesystem::path output_dir;
  std::optional<std::filesystem::path> resume;  // a checkpoint's folder
};

class Trainer {
 public:
  Trainer(const TrainingJob& job, const cxxrun::World& world, ShutdownWatcher& shutdown, cxxrun::ControlChannel& launcher);

  // What is trained, how and where, for the user; on rank 0. `info` names what only the caller knows.
  void print_start(StartInfo info) const;

  // Trains to the last step, or until a signal: then 128 + its number is returned, after a checkpoint. 0 = done.
  int run();

 private:
  void train_step();
  std::vector<Batch> next_micro_batches();
  void log_step();
  void validate();
  void save();
  TrainingState state() const;
  void resume(const std::filesystem::path& checkpoint);
  std::unique_ptr<data::Loader> make_loader(std::shared_ptr<const data::Dataset> dataset, const data::Sampler& sampler, int64_t first_step,
                                            int64_t last_step, int64_t accumulation) const;

  const TrainingJob& job_;
  const TrainingOptions& options_;
  const cxxrun::World& world_;
  TrainingData data_;
  BatchPlan batch_;
  WorkersPlan workers_;
  data::Sampler sampler_;
  int64_t step_ = 0;  // completed optimizer steps
  int64_t saved_step_ = -1;
  int64_t total_steps_;
  int64_t schedule_steps_;  // length of the learning-rate schedule: that of the first run
  data::DatasetStats stats_;
  Normalizer normalizer_;
  std::shared_ptr<Policy> policy_;  // to read state from; forwards go through ddp_
  cxxrun::DistributedDataParallel<Policy> ddp_;
  LrPlan lr_;
  Optimizer optimizer_;
  std::optional<LrSchedule> schedule_;
  StepAgreement agreement_;
  std::unique_ptr<data::Loader> loader_;
  MetricWindow window_;
  std::optional<CheckpointWriter> checkpoints_;  // on rank 0
  std::vector<std::unique_ptr<Logger>> loggers_;  // on rank 0
  std::vector<std::pair<std::string, double>> validation_metrics_;  // to log with the next line
  ShutdownWatcher& shutdown_;
  cxxrun::ControlChannel& launcher_;
};

}  // namespace vla
