#include "worker/trainer.hpp"

#include <cmath>
#include <csignal>
#include <thread>

#include <torch/torch.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_text.hpp"
#include "common/registry.hpp"
#include "worker/checkpoint/fingerprint.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/resume_check.hpp"
#include "worker/checkpoint/weights.hpp"

namespace vla {
namespace {

at::ScalarType scalar_type(const std::string& dtype) { return dtype == "float64" ? at::kDouble : at::kFloat; }

// The same initial weights on every rank and device: made on the CPU from the seed.
std::shared_ptr<Policy> make_policy(const TrainingJob& job, const PolicyFeatures& features, at::Device device) {
  torch::manual_seed(static_cast<uint64_t>(job.config.training.seed));
  const auto& entry = cxxrun::find_in_registry(policy_registry(), job.config.policy.type, "policy.type");
  auto policy = entry.make(job.policy, features);
  if (!job.config.policy.path.empty() && !job.resume) load_weights(job.config.policy.path, *policy);
  policy->to(device, scalar_type(job.config.training.dtype));
  return policy;
}

data::DatasetStats stats_for(const TrainingJob& job, const TrainingData& data) {
  // A resumed run goes on with the statistics it was trained with.
  if (job.resume) return read_pretrained_stats(find_pretrained_model(*job.resume));
  const auto& stats = data.training->stats();
  return job.config.dataset.use_imagenet_stats ? with_imagenet_stats(stats, data.features) : stats;
}

cxxrun::DdpOptions ddp_options(const TrainingOptions& options) {
  // Losses are already divided by the global count.
  return {.reduction = cxxrun::DdpOptions::Reduction::kSum,
          .find_unused_parameters = options.find_unused_parameters,
          .gradient_as_bucket_view = true};
}

}  // namespace

Trainer::Trainer(const TrainingJob& job, const cxxrun::World& world, ShutdownWatcher& shutdown, cxxrun::ControlChannel& launcher)
    : job_(job),
      options_(job.config.training),
      world_(world),
      data_(open_training_data(job.config.dataset)),
      batch_(resolve_batch(options_.batch_size, options_.batch_size_mode, world.size(), options_.gradient_accumulation_steps)),
      workers_(resolve_workers(options_.num_workers, world.local_size(), std::max<int64_t>(1, std::thread::hardware_concurrency()))),
      sampler_({.dataset_size = data_.training->size(),
                .global_batch = batch_.effective,
                .seed = static_cast<uint64_t>(options_.seed),
                .drop_last = options_.drop_last}),
      total_steps_(resolve_steps(options_.steps, options_.epochs, sampler_.steps_per_epoch())),
      schedule_steps_(total_steps_),
      stats_(stats_for(job, data_)),
      normalizer_(job.policy.normalization(), data_.features, stats_, world.device(), scalar_type(options_.dtype)),
      policy_(make_policy(job, data_.features, world.device())),
      ddp_(policy_, world.group(), ddp_options(options_)),
      lr_(resolve_lr(job.config.optimizer.lr, options_.lr_scaling, world.size(), options_.batch_size_mode)),
      optimizer_(policy_->parameter_groups(), job.config.optimizer),
      agreement_(world, shutdown),
      shutdown_(shutdown),
      launcher_(launcher) {
  if (job.resume) resume(*job.resume);
  schedule_.emplace(job.config.scheduler, job.config.optimizer.lr, schedule_steps_);
  loader_ = make_loader(data_.training, sampler_, step_, total_steps_, batch_.accumulation);
  if (world_.is_main() && !job.config.dry_run) {
    checkpoints_.emplace(CheckpointWriter::Options{.output_dir = job.output_dir, .retention = {.keep = options_.keep_checkpoints}});
    loggers_ = make_loggers({"console", "jsonl"}, {.output_dir = job.output_dir, .first_step = step_});
  }
}

void Trainer::print_start(StartInfo info) const {
  info.device = world_.device().str();
  info.backend = world_.backend();
  info.world_size = world_.size();
  info.total_steps = total_steps_;
  info.batch = batch_;
  info.lr = lr_;
  info.workers = workers_;
  for (const std::string& line : start_lines(job_.config, info)) cxxrun::log_info("{}", line);
  int64_t parameters = 0, trainable = 0;
  for (const auto& parameter : policy_->parameters()) {
    parameters += parameter.numel();
    if (parameter.requires_grad()) trainable += parameter.numel();
  }
  cxxrun::log_info("dataset: {}: {} episodes, {} frames to train on, {} held out; {} steps an epoch", data_.training->description(),
                   data_.training->episodes().size(), data_.training->size(), data_.validation ? data_.validation->size() : 0,
                   sampler_.steps_per_epoch());
  cxxrun::log_info("parameters: {} ({} trainable)", parameters, trainable);
}

int Trainer::run() {
  window_.restart(loader_->waited());
  while (step_ < total_steps_) {
    const auto requests = agreement_.requests();
    if (requests.save || requests.stop) save();
    if (requests.stop) {
      const int signal_number = shutdown_.stop_signal();
      return 128 + (signal_number ? signal_number : SIGTERM);
    }

    train_step();

    const bool last = step_ == total_steps_;
    const auto due = [&](int64_t every) { return last || (every > 0 && step_ % every == 0); };
    if (due(options_.val_freq > 0 ? options_.val_freq : options_.save_freq)) validate();
    if (due(options_.log_freq)) log_step();
    if (due(options_.save_freq)) save();
  }
  if (checkpoints_ && !checkpoints_->wait()) return 1;
  return 0;
}

void Trainer::train_step() {
  const std::vector<Batch> micro_batches = next_micro_batches();
  torch::Tensor counts = policy_->loss_counts(micro_batches.front());
  for (size_t i = 1; i < micro_batches.size(); ++i) counts += policy_->loss_counts(micro_batches[i]);
  counts = agreement_.exchange(counts);

  ddp_.train();
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    ddp_.set_sync(i + 1 == micro_batches.size());
    const StepRandom random(static_cast<uint64_t>(options_.seed), step_, micro_batches[i].position);
    const PolicyLoss loss = ddp_.forward([&](Policy& policy) { return policy.compute_loss(micro_batches[i], counts, random); });
    loss.loss.backward();
    window_.add_loss(loss);
  }

  optimizer_.set_lr_factor(lr_.factor * schedule_->factor(step_));
  const torch::Tensor grad_norm = optimizer_.clip_grad_norm();
  optimizer_.step();
  optimizer_.zero_grad();

  window_.end_step(grad_norm, sampler_.global_batch_size(step_));
  launcher_.beat(++step_);
}

std::vector<Batch> Trainer::next_micro_batches() {
  std::vector<Batch> batches;
  for (int64_t micro = 0; micro < batch_.accumulation; ++micro) {
    batches.push_back(make_batch(*loader_->next(), loader_->layout(), world_.device(), scalar_type(options_.dtype)));
    normalizer_.normalize(batches.back());
  }
  return batches;
}

void Trainer::log_step() {
  StepMetrics metrics = window_.close(world_, loader_->waited());
  metrics.step = step_;
  metrics.total_steps = total_steps_;
  metrics.epoch = static_cast<double>(step_) / static_cast<double>(sampler_.steps_per_epoch());
  metrics.lr = optimizer_.lr();
  if (!std::isfinite(metrics.loss)) {
    throw cxxrun::Error("the loss is {} within the last {} steps before step {}: lower optimizer.lr (now {}), check the data with "
                        "`vla_worker info`, or continue from an earlier checkpoint",
                        metrics.loss, std::min(options_.log_freq, step_), step_, metrics.lr);
  }
  metrics.more.insert(metrics.more.end(), validation_metrics_.begin(), validation_metrics_.end());
  validation_metrics_.clear();
  for (const auto& logger : loggers_) logger->log(metrics);
}

void Trainer::validate() {
  if (!data_.validation) return;
  const auto start = std::chrono::steady_clock::now();
  const data::Sampler in_order({.dataset_size = data_.validation->size(), .global_batch = batch_.global, .shuffle = false});
  const auto loader = make_loader(data_.validation, in_order, 0, in_order.steps_per_epoch(), 1);
  const auto mean = mean_action(stats_, world_.device(), scalar_type(options_.dtype));
  const Evaluation result = evaluate(ddp_, normalizer_, mean, *loader, in_order.steps_per_epoch(), world_);
  cxxrun::log_info("step {}/{} | validation on {} held-out frames: loss {:.4f}, open-loop action error {:.4f} (always the mean action: {:.4f})",
                   step_, total_steps_, result.frames, result.loss, result.action_error, result.mean_action_error);
  validation_metrics_ = {{"val_loss", result.loss}, {"val_action_error", result.action_error}, {"val_mean_action_error", result.mean_action_error}};
  window_.exclude(std::chrono::steady_clock::now() - start);
}

TrainingState Trainer::state() const {
  return {.step = step_,
          .consumed_samples = sampler_.consumed_samples(step_),
          .seed = options_.seed,
          .global_batch = batch_.effective,
          .world_size = world_.size(),
          .schedule_steps = schedule_steps_,
          .config_hash = fingerprint(cxxrun::dump_yaml(job_.table)),
          .data_fingerprint = data_fingerprint(*data_.training)};
}

void Trainer::save() {
  if (!checkpoints_ || saved_step_ == step_) return;
  saved_step_ = step_;
  CheckpointFiles files;
  add_pretrained_model(files, job_.config.policy.type, *policy_, stats_, options_as_json(job_.table));
  add_optimizer_state(files, optimizer_.state());
  files.texts["training_state/config.yaml"] = cxxrun::dump_yaml(job_.table);
  checkpoints_->save(state(), std::move(files));
  cxxrun::log_info("step {}/{} | checkpoint {}", step_, total_steps_, (job_.output_dir / "checkpoints" / checkpoint_name(step_)).string());
}

void Trainer::resume(const std::filesystem::path& checkpoint) {
  const TrainingState stored = read_training_state(checkpoint);
  check_resume(checkpoint, stored, state(), job_.table).require(checkpoint, /*resume_changed=*/false);
  load_weights(find_pretrained_model(checkpoint), *policy_);
  optimizer_.load_state(read_optimizer_state(checkpoint, *policy_));
  step_ = saved_step_ = stored.step;
  if (stored.schedule_steps > 0) schedule_steps_ = stored.schedule_steps;
  cxxrun::log_info("continuing from {} after step {} of {} (saved by {} ranks, now {})", checkpoint.string(), step_, total_steps_,
                   stored.world_size, world_.size());
}

std::unique_ptr<data::Loader> Trainer::make_loader(std::shared_ptr<const data::Dataset> dataset, const data::Sampler& sampler, int64_t first_step,
                                                   int64_t last_step, int64_t accumulation) const {
  const auto plan = [this, sampler, first_step, last_step, accumulation](int64_t k) -> std::optional<data::MicroBatch> {
    const int64_t step = first_step + k / accumulation;
    if (step >= last_step) return std::nullopt;
    return sampler.micro_batch(step, k % accumulation, accumulation, world_.rank(), world_.size());
  };
  const bool page_locked = world_.device().is_cuda();
  data::LoaderOptions options{.rows = batch_.per_gpu,
                              .num_threads = static_cast<int>(workers_.per_rank),
                              .num_slots = static_cast<int>(std::max<int64_t>(4, 2 * accumulation)),
                              .allocate = [page_locked](size_t bytes) { return allocate_slot(bytes, page_locked); }};
  return std::make_unique<data::Loader>(std::move(dataset), job_.policy.sample_request(data_.features), plan, std::move(options));
}

}  // namespace vla
