// What the trainer prints, stores and reads back: the loop itself is in trainer.cpp.
#include <algorithm>
#include <chrono>
#include <cmath>

#include <torch/torch.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_text.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/resume_check.hpp"
#include "worker/checkpoint/retention.hpp"
#include "worker/checkpoint/weights.hpp"
#include "worker/start_timing.hpp"
#include "worker/trainer.hpp"

namespace vla {

void Trainer::open_output() {
  int64_t bytes = 0;
  for (const auto& parameter : policy_->parameters()) bytes += static_cast<int64_t>(parameter.nbytes());
  checkpoints_.emplace(CheckpointWriter::Options{.output_dir = job_.output_dir,
                                                 .retention = {.keep = options_.keep_checkpoints, .keep_every = options_.keep_every},
                                                 .best = best_,
                                                 .device = world_.device(),
                                                 .expected_bytes = (ema_ ? 5 : 3) * bytes});  // weights, two moments, two averages
  const LoggingOptions& logging = job_.config.logging;
  if (logging.gpu_stats && world_.device().is_cuda()) gpu_monitor_.emplace(cxxrun::pci_bus_id(world_.device()));
  loggers_ = make_loggers(logging.sinks_in_use(),
                          {.output_dir = job_.output_dir, .first_step = step_, .options = logging, .config_json = options_as_json(job_.table)});
}

void Trainer::print_start(StartInfo info) const {
  info.devices = world_.gather(cxxrun::device_name(world_.device()));
  info.backend = world_.backend();
  info.world_size = world_.size();
  info.dataset = data_.training->description();
  info.episodes = static_cast<int64_t>(data_.training->episodes().size());
  info.broken_episodes = data_.training->broken_episodes();
  info.training_frames = data_.training->size();
  info.validation_frames = data_.validation ? data_.validation->size() : 0;
  info.steps_per_epoch = sampler_.steps_per_epoch();
  info.first_step = step_;
  info.total_steps = total_steps_;
  info.precision = options_.dtype == "float64" ? options_.dtype : options_.precision;
  info.batch = batch_;
  info.lr = lr_;
  info.workers = workers_;
  for (const auto& parameter : policy_->parameters()) {
    info.parameters += parameter.numel();
    if (parameter.requires_grad()) info.trainable += parameter.numel();
  }
  for (const std::string& line : start_lines(job_.config, info)) cxxrun::log_info("{}", line);
}

void Trainer::end_start() {
  if (world_.device().is_cuda()) torch::cuda::synchronize(world_.device().index());
  start_timing().mark("first step");
  start_timing().close();
  if (!job_.config.logging.timing || !world_.is_main()) return;
  for (const std::string& line : timing_lines(start_timing())) cxxrun::log_info("{}", line);
}

StepMetrics Trainer::close_window() {
  StepMetrics metrics = window_.close(world_, loader_->waited());
  metrics.step = step_;
  metrics.total_steps = total_steps_;
  metrics.epoch = static_cast<double>(step_) / static_cast<double>(sampler_.steps_per_epoch());
  metrics.lr = optimizer_.lr();
  if (peak_flops_ && flops_ > 0) {
    metrics.mfu = static_cast<double>(flops_ * batch_.accumulation) / (metrics.seconds_per_step * *peak_flops_);
  }
  return metrics;
}

void Trainer::log_step() {
  StepMetrics metrics = close_window();
  if (!world_.is_main()) return;
  if (const auto stats = gpu_monitor_ ? gpu_monitor_->read() : std::nullopt) metrics.gpus = {*stats};
  if (job_.config.logging.sample_ids) metrics.sample_ids = sampler_.global_batch(step_ - 1);
  metrics.skipped_rows = loader_->skipped().rows;  // of this rank
  metrics.more.insert(metrics.more.end(), validation_metrics_.begin(), validation_metrics_.end());
  validation_metrics_.clear();
  for (const auto& logger : loggers_) logger->log(metrics);
}

void Trainer::validate() {
  if (!data_.validation) return;
  const auto start = std::chrono::steady_clock::now();
  const data::Sampler in_order({.dataset_size = data_.validation->size(), .global_batch = batch_.global, .shuffle = false});
  const auto loader = make_loader(data_.validation, job_.policy.sample_request(data_.features), in_order, 0, in_order.steps_per_epoch(), 1);
  const auto mean = mean_action(stats_, world_.device(), precision_.batch());
  std::optional<Ema::Scope> averaged;
  if (ema_) {
    optimizer_.gather_state();
    averaged.emplace(*ema_);
  }
  const AutocastGuard autocast(precision_, world_.device());
  policy_->set_tasks(data_.validation->tasks());
  const Evaluation result = evaluate(ddp_, normalizer_, mean, *loader, in_order.steps_per_epoch(), world_);
  policy_->set_tasks(data_.training->tasks());
  cxxrun::log_info("step {}/{} | validation{} on {} held-out frames: loss {:.4f}, open-loop action error {:.4f} (always the mean action: {:.4f})",
                   step_, total_steps_, ema_ ? " of the averaged weights" : "", result.frames, result.loss, result.all.policy,
                   result.all.mean_action);
  validation_metrics_ = {{"val_loss", result.loss}, {"val_action_error", result.all.policy}, {"val_mean_action_error", result.all.mean_action}};
  validation_loss_ = result.loss;
  if (result.loss < (best_ ? best_->loss : INFINITY)) {
    best_ = {step_, result.loss};
    save_best_ = true;
  }
  schedule_->observe(result.loss);
  window_.exclude(std::chrono::steady_clock::now() - start);
}

Measurement Trainer::measure(const MeasureOptions& options) {
  if (options.resident) {
    resident_.emplace();
    first_resident_ = step_;
  }
  const auto step = [&] {
    if (step_ >= total_steps_) throw cxxrun::UsageError("training.steps = {} are too few for {} steps of warm-up and {} measured ones", total_steps_, options.warmup, options.steps);
    train_step();
    const StepAgreement::Requests requests = agreement_.requests();
    if (requests.non_finite) act_on_non_finite(*requests.non_finite);
  };
  for (int64_t i = 0; i < options.warmup; ++i) step();
  agreement_.settle();
  window_.restart(loader_->waited());
  std::vector<double> seconds;
  for (int64_t i = 0; i < options.steps; ++i) {
    if (options.before_step) options.before_step(i);
    const auto start = std::chrono::steady_clock::now();
    step();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  Measurement result{.metrics = {}, .median_step_s = 0, .as_graph = graph_.is_replayed(), .graph_nodes = graph_.nodes(), .why_no_graph = graph_.reason()};
  agreement_.settle();
  result.metrics = close_window();
  std::ranges::nth_element(seconds, seconds.begin() + options.steps / 2);
  result.median_step_s = seconds[static_cast<size_t>(options.steps / 2)];
  for (const auto& parameter : policy_->parameters()) {
    result.parameters += parameter.numel();
    if (parameter.requires_grad()) result.trainable_parameters += parameter.numel();
  }
  resident_.reset();
  return result;
}

TrainingState Trainer::state() const {
  TrainingState state{.step = step_,
                      .consumed_samples = sampler_.consumed_samples(step_),
                      .seed = options_.seed,
                      .global_batch = batch_.effective,
                      .world_size = world_.size(),
                      .schedule_steps = schedule_steps_,
                      .config_hash = config_hash_,
                      .data_fingerprint = data_fingerprint_};
  state.numbers = schedule_->state();
  return state;
}

void Trainer::take_snapshot() {
  if (taken_step_ == step_) return;
  taken_step_ = step_;
  optimizer_.gather_state();
  if (!checkpoints_) return;
  CheckpointFiles files;
  const std::string train_config = options_as_json(job_.table);
  const std::string& type = job_.config.policy.type;
  add_pretrained_model(files, type, *policy_, stats_, train_config);
  if (ema_) {
    add_pretrained_model(files, type, *policy_, stats_, train_config, kEmaModelFolder, ema_->averaged(state_dict(*policy_)));
    add_tensor_state(files, "ema", ema_->shadow());
  }
  if (scaler_) add_tensor_state(files, "scaler", scaler_->state());
  add_optimizer_state(files, optimizer_.state());
  files.texts["training_state/config.yaml"] = cxxrun::dump_yaml(job_.table);
  checkpoints_->take(std::move(files));
}

void Trainer::save() {
  if (saved_step_ == step_) return;
  take_snapshot();
  saved_step_ = step_;
  if (!checkpoints_) return;
  checkpoints_->save(state(), std::exchange(validation_loss_, std::nullopt));
  cxxrun::log_info("step {}/{} | checkpoint {}", step_, total_steps_, (job_.output_dir / "checkpoints" / checkpoint_name(step_)).string());
}

int Trainer::finish() {
  for (const auto& logger : loggers_) logger->close();
  const bool is_saved = !checkpoints_ || checkpoints_->wait();
  // The other ranks have nothing to add to what rank 0 said about it.
  const auto failed = torch::full({}, is_saved ? 0.0 : 1.0, torch::kDouble);
  world_.all_reduce_sum(failed);
  return failed.item<double>() > 0 ? 1 : 0;
}

void Trainer::resume(const std::filesystem::path& checkpoint) {
  const TrainingState stored = read_training_state(checkpoint);
  check_resume(checkpoint, stored, state(), job_.table).require(checkpoint, job_.config.resume_changed);
  load_weights(find_pretrained_model(checkpoint), *policy_);
  optimizer_.load_state(read_optimizer_state(checkpoint, *policy_));
  if (ema_) {
    const auto averaged = read_tensor_state(checkpoint, "ema");
    averaged ? ema_->load(*averaged) : ema_->restart();
  }
  const auto scaler = scaler_ ? read_tensor_state(checkpoint, "scaler") : std::nullopt;
  if (scaler) scaler_->load_state(*scaler);
  step_ = saved_step_ = taken_step_ = stored.step;
  if (stored.schedule_steps > 0) schedule_steps_ = stored.schedule_steps;
  schedule_.emplace(job_.config.scheduler, job_.config.optimizer.lr, schedule_steps_);
  schedule_->load_state(stored.numbers);
  best_ = stored.best;
  cxxrun::log_info("continuing from {} after step {} of {} (saved by {} ranks, now {})", checkpoint.string(), step_, total_steps_,
                   stored.world_size, world_.size());
}

}  // namespace vla
