// The training loop and everything it is made of, in the order in which data flows: config, dataset, batch, policy, loss, DDP,
// optimizer, checkpoint and log. One per process, used by one thread; all ranks make it and run it alike.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/control_channel.hpp"
#include "worker/augment.hpp"
#include "worker/checkpoint/checkpoint.hpp"
#include "worker/data/sampler.hpp"
#include "worker/distributed/ddp.hpp"
#include "worker/distributed/process_group.hpp"
#include "worker/evaluation.hpp"
#include "worker/frozen_cache.hpp"
#include "worker/loggers/logger.hpp"
#include "worker/metric_window.hpp"
#include "worker/optim/ema.hpp"
#include "worker/optim/grad_scaler.hpp"
#include "worker/optim/lr_schedule.hpp"
#include "worker/optim/optimizer.hpp"
#include "worker/optim/precision.hpp"
#include "worker/policies/nn/gradient_place.hpp"
#include "worker/policies/normalizer.hpp"
#include "worker/run_plan.hpp"
#include "worker/start_table.hpp"
#include "worker/step_agreement.hpp"
#include "worker/step_graph.hpp"
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

// For benchmarks.
struct MeasureOptions {
  int64_t warmup = 15, steps = 30;
  bool resident = false;  // the first two batches stay on the device and are used again and again
  std::function<void(int64_t step)> before_step;  // of the measured steps, from 0
};

struct Measurement {
  StepMetrics metrics;  // of the measured steps
  double median_step_s = 0;
  bool as_graph = false;
  int64_t graph_nodes = 0;
  std::string why_no_graph;  // empty where there is one
  int64_t parameters = 0, trainable_parameters = 0;
};

class Trainer {
 public:
  Trainer(const TrainingJob& job, const cxxrun::World& world, ShutdownWatcher& shutdown, cxxrun::ControlChannel& launcher);

  // What is trained, how and where, for the user; on rank 0. `info` names what only the caller knows. A collective.
  void print_start(StartInfo info) const;

  // Trains to the last step, or until a signal: then 128 + its number is returned, after a checkpoint. 0 = done, 1 = done, but the
  // last checkpoint could not be saved.
  int run();

  // Trains without logging and saving, and says how fast. Needs warmup + steps steps to train. A collective.
  Measurement measure(const MeasureOptions& options);

 private:
  void train_step();
  std::vector<Batch> next_micro_batches();
  void run_micro_batch(const Batch& batch, const torch::Tensor& counts, bool is_last);
  PolicyLoss forward(const Batch& batch, const torch::Tensor& counts);
  void update();
  void end_start();  // after the first step
  StepMetrics close_window();
  void act_on_non_finite(const NonFiniteStep& bad);
  void open_output();
  void log_step();
  void validate();
  void take_snapshot();  // of this step, for save()
  void save();
  int finish();
  TrainingState state() const;
  void resume(const std::filesystem::path& checkpoint);
  // A slot's rows as the policy sees them.
  Batch prepared(const data::Slot& slot, const data::SampleLayout& layout) const;
  void make_frozen_cache(FrozenLevel level, const data::SampleRequest& request);
  data::LoaderOptions loader_options(int64_t accumulation) const;
  std::unique_ptr<data::Loader> make_loader(std::shared_ptr<const data::Dataset> dataset, const data::SampleRequest& request,
                                            const data::Sampler& sampler, int64_t first_step, int64_t last_step, int64_t accumulation) const;

  const TrainingJob& job_;
  const TrainingOptions& options_;
  const cxxrun::World& world_;
  const bool is_fast_;  // the mode of the process, set before what asks for it is made: policy and optimizer
  Precision precision_;
  TrainingData data_;
  std::string config_hash_, data_fingerprint_;
  BatchPlan batch_;
  WorkersPlan workers_;
  data::Sampler sampler_;
  int64_t step_ = 0;  // completed optimizer steps
  int64_t saved_step_ = -1, taken_step_ = -1;
  int64_t total_steps_;
  int64_t save_freq_;
  int64_t schedule_steps_;  // length of the learning-rate schedule: that of the first run
  data::DatasetStats stats_;
  Augmenter augmenter_;
  Normalizer normalizer_;
  MetricWindow window_;
  TensorMap masters_;  // for the optimizer to take
  std::shared_ptr<Policy> policy_;  // to read state from; forwards go through ddp_
  cxxrun::DistributedDataParallel<Policy> ddp_;
  GradientPlaceScope gradient_places_;
  LrPlan lr_;
  Optimizer optimizer_;
  std::optional<GradScaler> scaler_;
  std::optional<Ema> ema_;
  std::optional<LrSchedule> schedule_;
  StepAgreement agreement_;
  std::optional<FrozenCache> frozen_;
  std::unique_ptr<data::Loader> loader_;
  torch::Tensor device_step_;  // int64 scalar: step_ for kernels; undefined on the CPU
  StepGraph graph_;
  std::optional<std::vector<std::vector<Batch>>> resident_;  // micro-batches of the steps that measure() repeats
  int64_t first_resident_ = 0;  // the first of these steps
  int64_t flops_ = 0;  // of a micro-batch, forward and backward; 0 = not counted yet
  std::optional<double> peak_flops_;  // of this rank's device
  int64_t skipped_in_a_row_ = 0, skipped_at_ = -1;
  std::optional<CheckpointWriter> checkpoints_;  // on rank 0
  std::vector<std::unique_ptr<Logger>> loggers_;  // on rank 0
  std::vector<std::pair<std::string, double>> validation_metrics_;  // to log with the next line
  std::optional<double> validation_loss_;  // of the current step
  bool save_best_ = false;  // the current step's is the lowest
  std::optional<BestCheckpoint> best_;  // so far, and in the run that is continued
  std::optional<GpuMonitor> gpu_monitor_;  // on rank 0
  ShutdownWatcher& shutdown_;
  cxxrun::ControlChannel& launcher_;
};

}  // namespace vla
