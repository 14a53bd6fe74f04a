#include "worker/trainer.hpp"

#include <cmath>
#include <csignal>
#include <thread>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_text.hpp"
#include "common/registry.hpp"
#include "worker/checkpoint/fingerprint.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/weights.hpp"
#include "worker/data/cached_dataset.hpp"
#include "worker/data/renamed_dataset.hpp"
#include "worker/dataset_parts.hpp"
#include "worker/distributed/bucket_shares.hpp"
#include "worker/flops.hpp"
#include "worker/phase_range.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/random_init.hpp"
#include "worker/start_timing.hpp"
#include "worker/step_profiler.hpp"
#include "worker/training_context.hpp"

namespace vla {
namespace {

constexpr int64_t kMostSkippedInARow = 100;
constexpr size_t kResidentSteps = 2;
// A trace is of steps as they are for the rest of the training: graphs are captured by then.
constexpr int64_t kUntracedSteps = 20;

// Of the process, from here on.
bool choose_mode(const SpeedOptions& options, const cxxrun::World& world) {
  const bool fast = options.is_fast(world.device().is_cuda());
  set_fast_mode(fast);
  return fast;
}

// The same initial weights on every rank and device: drawn on the CPU from the seed. `masters` gets the float32 values of what is
// rounded to 16 bits and trained.
std::shared_ptr<Policy> make_policy(const TrainingJob& job, const PolicyFeatures& features, const Precision& precision, const cxxrun::World& world,
                                    TensorMap& masters) {
  const TrainConfig& config = job.config;
  torch::manual_seed(static_cast<uint64_t>(config.training.seed));
  const auto& entry = cxxrun::find_in_registry(policy_registry(), config.policy.type, "policy.type");
  const bool weights_follow = !config.policy.path.empty() || job.resume;
  std::optional<SkipRandomInit> undrawn;
  if (weights_follow) undrawn.emplace();
  auto policy = entry.make(job.policy, features);
  undrawn.reset();
  start_timing().mark("policy built");
  // To the device as they are, or without values if those follow: it rounds them faster than the host.
  if (weights_follow) {
    for (at::Tensor& parameter : policy->parameters()) parameter.set_data(at::empty_like(parameter, parameter.options().device(world.device())));
  }
  policy->to(world.device());
  start_timing().mark("on the device");
  if (!config.policy.path.empty() && !job.resume) {
    load_weights(config.policy.path, *policy);
    start_timing().mark("weights loaded");
  }
  if (config.training.activation_checkpointing) policy->set_activation_checkpointing(true);
  if (at::isReducedFloatingType(precision.parameters) && !job.resume) {
    // No copies: rounding gives parameters other memory.
    for (const auto& entry : policy->named_parameters()) {
      const at::Tensor& value = entry.value();
      if (value.requires_grad() && value.scalar_type() == at::kFloat) masters[entry.key()] = value.detach();
    }
  }
  policy->to(precision.parameters);
  start_timing().mark("rounded");
  policy->set_all_reduce_sum([&world](at::Tensor tensor) { world.all_reduce_sum_apart(std::move(tensor)); });
  return policy;
}

TrainingData open_data(const TrainingJob& job, int64_t local_ranks) {
  const TrainConfig& config = job.config;
  TrainingData data =
      open_training_data(config.dataset, config.policy.rename_map, config.data.on_error == "skip", job.policy.drop_n_last_frames());
  std::vector<std::string> roots;
  for (const DatasetPart& part : dataset_parts(config.dataset)) roots.push_back(part.path);
  uint64_t memory = data::frame_memory(config.data, local_ranks);
  const data::SampleRequest request = job.policy.sample_request(data.features);
  std::vector<std::string> keys;
  for (const auto& field : request) keys.push_back(field.key);
  data::require_features(*data.training, keys);
  data.training = data::cached_dataset(std::move(data.training), request, config.data, roots, memory);
  if (data.validation) data.validation = data::cached_dataset(std::move(data.validation), request, config.data, roots, memory);
  start_timing().mark("dataset opened");
  return data;
}

data::DatasetStats stats_for(const TrainingJob& job, const TrainingData& data) {
  // A resumed run goes on with the statistics it was trained with.
  if (job.resume) return read_pretrained_stats(find_pretrained_model(*job.resume));
  const auto& stats = data.training->stats();
  return job.config.dataset.use_imagenet_stats ? with_imagenet_stats(stats, data.features) : stats;
}

std::optional<at::ScalarType> gradient_dtype(const std::string& name) {
  if (name == "auto") return std::nullopt;
  return name == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

// Why ranks cannot share the optimizer's work, for the user; empty = they can.
std::string why_no_shares(const TrainConfig& config, const Precision& precision, const cxxrun::World& world) {
  const TrainingOptions& training = config.training;
  if (!config.speed.is_fast(world.device().is_cuda())) return "speed.mode is reference";
  if (training.dtype == "float64") return "training.dtype is float64";
  if (precision.needs_scaler) return "precision=" + training.precision + " scales its losses";
  if (training.gradient_accumulation_steps > 1) return "gradients are accumulated";
  if (training.gradient_dtype != "auto") return "training.gradient_dtype is " + training.gradient_dtype;
  if (training.find_unused_parameters) return "training.find_unused_parameters is on";
  return {};
}

bool shares_updates(const TrainConfig& config, const Precision& precision, const cxxrun::World& world, const Policy& policy) {
  const std::string &wish = config.training.shard_optimizer, reason = why_no_shares(config, precision, world);
  if (wish == "off" || world.size() == 1) return false;
  if (wish == "on" && !reason.empty()) throw cxxrun::UsageError("training.shard_optimizer = on, but {}", reason);
  if (wish == "on") return true;
  if (!reason.empty() || world.backend() != "nccl") return false;
  // Below that, on two H200, an update of all takes no longer than one of a half and the others' way (tests/bench/NOTES.md).
  constexpr int64_t kWorthSharing = 150'000'000;
  int64_t trainable = 0;
  for (const auto& parameter : policy.parameters()) trainable += parameter.requires_grad() ? parameter.numel() : 0;
  return trainable >= kWorthSharing;
}

cxxrun::DdpOptions ddp_options(const TrainingOptions& options, StepTimer& timer, bool skip_alone, bool shares) {
  // Losses are already divided by the global count.
  const auto bytes = [](double mb) { return std::llround(mb * (1 << 20)); };
  return {.reduction = cxxrun::DdpOptions::Reduction::kSum,
          .bucket_bytes = bytes(options.bucket_mb),
          .first_bucket_bytes = bytes(options.first_bucket_mb),
          .find_unused_parameters = options.find_unused_parameters,
          .gradient_as_bucket_view = true,
          .skip_alone = skip_alone,
          .communication_dtype = gradient_dtype(options.gradient_dtype),
          .shares_updates = shares,
          .on_last_bucket = [&timer] { timer.mark(StepMark::kBackwardDone); }};
}

// Why a step is not to be captured as a CUDA graph, for the user; empty = it is.
std::string why_no_graph(const TrainConfig& config, const cxxrun::World& world) {
  if (!world.device().is_cuda()) return "training runs on the CPU";
  if (config.speed.graph == "off") return "speed.graph is off";
  if (config.speed.graph == "auto" && !config.speed.is_fast(true)) return "speed.mode is reference";
  if (config.training.find_unused_parameters) return "training.find_unused_parameters reads which parameters were used in every step";
  if (world.size() > 1 && world.backend() != "nccl") return "backend " + world.backend() + " sums on the CPU";
  return {};
}

std::vector<std::string> camera_keys(const PolicyFeatures& features) {
  std::vector<std::string> keys;
  for (const PolicyFeature& input : features.inputs) {
    if (input.type == data::FeatureType::kVisual) keys.push_back(input.key);
  }
  return keys;
}

}  // namespace

Trainer::Trainer(const TrainingJob& job, const cxxrun::World& world, ShutdownWatcher& shutdown, cxxrun::ControlChannel& launcher)
    : job_(job),
      options_(job.config.training),
      world_(world),
      is_fast_(choose_mode(job.config.speed, world)),
      precision_(make_precision(options_.precision, options_.dtype == "float64" ? at::kDouble : at::kFloat, world.device())),
      data_(open_data(job, world.local_size())),
      config_hash_(fingerprint(cxxrun::dump_yaml(job.table))),
      data_fingerprint_(data_fingerprint(*data_.training)),
      batch_(resolve_batch(options_.batch_size, options_.batch_size_mode, world.size(), options_.gradient_accumulation_steps)),
      workers_(resolve_workers(options_.num_workers, world.local_size(), std::max<int64_t>(1, std::thread::hardware_concurrency()))),
      sampler_({.dataset_size = data_.training->size(),
                .global_batch = batch_.effective,
                .seed = static_cast<uint64_t>(options_.seed),
                .drop_last = options_.drop_last,
                .parts = data_.parts}),
      total_steps_(resolve_steps(options_.steps, options_.epochs, sampler_.steps_per_epoch())),
      save_freq_(options_.save_epochs > 0 ? options_.save_epochs * sampler_.steps_per_epoch() : options_.save_freq),
      schedule_steps_(total_steps_),
      stats_(stats_for(job, data_)),
      augmenter_(job.config.augment, camera_keys(data_.features), static_cast<uint64_t>(options_.seed), world.device()),
      normalizer_(job.policy.normalization(), data_.features, stats_, world.device(), precision_.batch()),
      window_(world.device()),
      policy_(make_policy(job, data_.features, precision_, world, masters_)),
      ddp_(policy_, world.group(), ddp_options(options_, window_.timer(), is_fast_, shares_updates(job.config, precision_, world, *policy_))),
      gradient_places_([this](const at::Tensor& weight) { return ddp_.take_gradient_place(weight); }),
      lr_(resolve_lr(job.config.optimizer.lr, options_.lr_scaling, world.size(), options_.batch_size_mode)),
      optimizer_(policy_->parameter_groups(), job.config.optimizer, std::exchange(masters_, {})),
      agreement_(world, shutdown),
      graph_(why_no_graph(job.config, world), job.config.speed.graph == "on"),
      shutdown_(shutdown),
      launcher_(launcher) {
  apply_tf32(precision_);
  if (world.device().is_cuda()) {
    device_step_ = torch::zeros({}, torch::dtype(torch::kLong).device(world.device()));
    at::Context& context = at::globalContext();
    const bool deterministic = job.config.speed.deterministic;
    const auto trials = static_cast<int>(job.config.speed.cudnn_trials);
    context.setBenchmarkCuDNN(is_fast_ && !deterministic && trials > 0);
    context.setBenchmarkLimitCuDNN(trials);
    context.setDeterministicCuDNN(deterministic);
    context.setDeterministicAlgorithms(deterministic, /*warn_only=*/true);
    context.setDeterministicFillUninitializedMemory(false);
  }
  if (precision_.needs_scaler) scaler_.emplace(job.config.grad_scaler, world.device());
  if (job.config.ema.enable) ema_.emplace(*policy_, job.config.ema);
  // Graphs of several micro-batches add to what lies there: one graph runs for all but the last.
  const bool accumulates = batch_.accumulation > 1 || !is_fast_;
  optimizer_.set_after_update({.zero_grad = accumulates, .release_grad = !accumulates, .average = ema_ ? &*ema_ : nullptr});
  schedule_.emplace(job.config.scheduler, job.config.optimizer.lr, schedule_steps_);
  if (schedule_->needs_validation() && !data_.validation) {
    throw cxxrun::UsageError("scheduler.type={} follows the validation loss, but nothing is held out: set dataset.val_episodes or dataset.eval_split",
                             job.config.scheduler.type);
  }
  policy_->set_tasks(data_.training->tasks());
  if (job.resume) resume(*job.resume);
  data::SampleRequest request = job.policy.sample_request(data_.features);
  if (const auto level = frozen_level(options_.frozen_cache, job.config.augment.enable)) {
    make_frozen_cache(*level, request);
    request = without_images(request, policy_->features());
  }
  loader_ = make_loader(data_.training, request, sampler_, step_, total_steps_, batch_.accumulation);
  if (world_.device().is_cuda()) peak_flops_ = peak_flops(cxxrun::device_name(world_.device()), options_.precision);
  training_context().set_sizes(world.rank(), {.batch_size = options_.batch_size,
                                              .per_gpu = batch_.per_gpu,
                                              .accumulation = batch_.accumulation,
                                              .effective = batch_.effective,
                                              .world_size = world.size(),
                                              .num_workers = workers_.per_rank,
                                              .precision = options_.precision,
                                              .device = world.device().str()});
  if (world_.is_main() && !job.config.dry_run) open_output();
  start_timing().mark("trainer made");
}

int Trainer::run() {
  const int64_t traced = job_.config.logging.profile_steps, first = std::clamp<int64_t>(total_steps_ - step_ - traced, 0, kUntracedSteps);
  StepProfiler profiler(step_ + first, traced, job_.output_dir / "profile" / fmt::format("rank{}.json", world_.rank()), world_.device());
  window_.restart(loader_->waited());
  StepAgreement::Requests requests;
  while (step_ < total_steps_) {
    if (requests.save || requests.stop) save();
    if (requests.stop) {
      for (const auto& logger : loggers_) logger->close();
      const int signal_number = shutdown_.stop_signal();
      return 128 + (signal_number ? signal_number : SIGTERM);
    }

    profiler.before_step(step_);
    train_step();

    const bool last = step_ == total_steps_;
    const auto is_due = [&](int64_t every) { return last || (every > 0 && step_ % every == 0); };
    const bool saves = is_due(save_freq_), logs = is_due(options_.log_freq);
    const bool validates = is_due(options_.val_freq > 0 ? options_.val_freq : save_freq_);
    // Queued behind the step: the device still has work while the host prepares a checkpoint.
    if (saves) take_snapshot();
    // What is written down must be known to be sound.
    requests = saves || logs || validates ? agreement_.settle() : agreement_.requests();
    if (requests.non_finite) act_on_non_finite(*requests.non_finite);
    if (validates) validate();
    if (logs) log_step();
    if (saves || std::exchange(save_best_, false)) save();
    for (const auto& logger : loggers_) logger->progress(step_, total_steps_);
  }
  profiler.finish();
  if (traced > 0) cxxrun::log_info("trace: {}", profiler.file().string());
  return finish();
}

void Trainer::train_step() {
  validation_loss_.reset();
  StepTimer& timer = window_.timer();
  timer.mark(StepMark::kStart);
  const std::vector<Batch> micro_batches = next_micro_batches();
  torch::Tensor counts = policy_->loss_counts(micro_batches.front());
  for (size_t i = 1; i < micro_batches.size(); ++i) counts += policy_->loss_counts(micro_batches[i]);
  counts = agreement_.exchange(counts);
  timer.mark(StepMark::kDataReady);
  start_timing().mark("first batch");

  // What changes from step to step is in the device's memory, where graphs read it.
  if (device_step_.defined()) device_step_.fill_(step_);
  optimizer_.set_lr_factor(lr_.factor * schedule_->factor(step_));
  if (ema_) ema_->set_decay_for(step_ + 1);
  agreement_.set_step(step_);
  ddp_.train();
  const PhaseRange range("step");
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const bool is_last = i + 1 == micro_batches.size();
    graph_.run(is_last, micro_batches[i], counts,
                [&](const Batch& batch, const torch::Tensor& sums) { run_micro_batch(batch, sums, is_last); });
  }
  timer.mark(StepMark::kUpdated);
  graph_.end_step();
  window_.count_step(sampler_.global_batch_size(resident_ ? first_resident_ + step_ % static_cast<int64_t>(kResidentSteps) : step_));
  launcher_.beat(++step_);
  if (start_timing().is_open()) end_start();
}

void Trainer::run_micro_batch(const Batch& batch, const torch::Tensor& counts, bool is_last) {
  training_context().enter("forward and backward pass");
  optimizer_.discard_grad();
  ddp_.set_sync(is_last);
  PolicyLoss loss;
  const auto compute = [&] {
    loss = forward(batch, counts);
    window_.timer().mark(StepMark::kForwardDone);
    const PhaseRange range("backward");
    (scaler_ ? scaler_->scale(loss.loss) : loss.loss).backward();
  };
  if (peak_flops_ && flops_ == 0) {
    flops_ = count_flops(compute);
  } else {
    compute();
  }
  window_.add_loss(loss);
  if (!is_last) return;
  if (!ddp_.is_reducing()) window_.timer().mark(StepMark::kBackwardDone);
  window_.timer().mark(StepMark::kReduced);
  training_context().enter("update");
  update();
}

PolicyLoss Trainer::forward(const Batch& batch, const torch::Tensor& counts) {
  const StepRandom random(static_cast<uint64_t>(options_.seed), step_, batch.position, device_step_);
  const AutocastGuard autocast(precision_, world_.device());
  const PhaseRange range("forward");
  return ddp_.forward([&](Policy& policy) { return policy.compute_loss(batch, counts, random); });
}

void Trainer::update() {
  const PhaseRange range("optimizer");
  if (cxxrun::BucketShares* shares = ddp_.begin_sharing()) {
    optimizer_.share(*shares, [this](const torch::Tensor& sum) { world_.all_reduce_sum_apart(sum); });
    if (world_.is_main()) cxxrun::log_info("optimizer: of {:.0f} % of the parameters each of {} ranks updates its share", 100 * shares->divided(), world_.size());
  }
  if (scaler_) scaler_->unscale(optimizer_.gradients());
  const torch::Tensor grad_norm = optimizer_.clip_grad_norm();
  optimizer_.step(scaler_ ? scaler_->found_inf() : torch::Tensor());
  if (scaler_) scaler_->update();
  // A scaler meets infinite gradients in the course of its work: only the loss tells then.
  agreement_.note(window_.step_loss(), scaler_ ? torch::zeros_like(grad_norm) : grad_norm);
  window_.end_step(grad_norm);
}

std::vector<Batch> Trainer::next_micro_batches() {
  const PhaseRange range("data");
  if (resident_ && resident_->size() == kResidentSteps) return (*resident_)[static_cast<size_t>(step_) % kResidentSteps];
  std::vector<Batch> batches;
  std::vector<int64_t> samples;
  training_context().begin_step(step_ + 1, total_steps_);
  training_context().enter("loading data");
  for (int64_t micro = 0; micro < batch_.accumulation; ++micro) {
    const data::Slot& slot = *loader_->next();
    for (const data::SampleRef& row : slot.batch.rows) {
      if (!row.is_padding) samples.push_back(row.sample);
    }
    batches.push_back(prepared(slot, loader_->layout()));
    if (frozen_) frozen_->add_to(batches.back(), slot);
  }
  training_context().set_samples(std::move(samples));
  if (resident_) resident_->push_back(batches);
  return batches;
}

Batch Trainer::prepared(const data::Slot& slot, const data::SampleLayout& layout) const {
  Batch batch = make_batch(slot, layout, world_.device(), precision_.batch(), /*keep_bytes=*/!job_.config.augment.enable);
  augmenter_.apply(batch, step_);
  normalizer_.normalize(batch, precision_.parameters, policy_->takes_image_bytes());
  return batch;
}

void Trainer::make_frozen_cache(FrozenLevel level, const data::SampleRequest& request) {
  const auto identity = [&] {
    const auto options = nlohmann::json::parse(options_as_json(job_.table));
    return frozen_fingerprint(*policy_) + data_fingerprint_ + options.at("policy").dump() + options.at("dataset").dump();
  };
  const auto features = [&](const data::Slot& slot, const data::SampleLayout& layout) {
    const AutocastGuard autocast(precision_, world_.device());
    return policy_->frozen_features(level, prepared(slot, layout));
  };
  policy_->train();
  frozen_.emplace(FrozenCacheOptions{.level = level, .gb = options_.frozen_cache_gb, .folder = job_.config.data.cache_dir, .identity = identity},
                  data_.training, request, loader_options(1), features, world_);
}

void Trainer::act_on_non_finite(const NonFiniteStep& bad) {
  std::string where = "the gradient's norm, with a finite loss on every rank";
  if (!bad.ranks.empty()) {
    std::vector<int64_t> samples;
    for (int64_t micro = 0; micro < batch_.accumulation; ++micro) {
      for (const auto& row : sampler_.micro_batch(bad.step, micro, batch_.accumulation, bad.ranks.front(), world_.size()).rows) {
        if (!row.is_padding) samples.push_back(row.sample);
      }
    }
    where = fmt::format("the loss on rank {} (samples of rank {}: {})", fmt::join(bad.ranks, ", "), bad.ranks.front(), fmt::join(samples, ", "));
  }
  const std::string what = fmt::format("step {}: {} is NaN or infinite", bad.step + 1, where);
  skipped_in_a_row_ = bad.step == skipped_at_ + 1 ? skipped_in_a_row_ + 1 : 1;
  skipped_at_ = bad.step;
  if (options_.on_non_finite == "stop" || skipped_in_a_row_ > kMostSkippedInARow) {
    throw cxxrun::Error("{}{}; the step was not applied: lower optimizer.lr (now {}), look at these samples with `vla_worker data check`, "
                        "continue from an earlier checkpoint, or skip such steps with --training.on_non_finite=skip",
                        what, skipped_in_a_row_ > kMostSkippedInARow ? fmt::format(", as in the {} steps before", kMostSkippedInARow) : "",
                        optimizer_.lr());
  }
  if (world_.is_main()) cxxrun::log_warning("{}; the step was skipped", what);
}

data::LoaderOptions Trainer::loader_options(int64_t accumulation) const {
  const data::DataOptions& data = job_.config.data;
  const bool page_locked = world_.device().is_cuda();
  return {.rows = batch_.per_gpu,
          .num_threads = static_cast<int>(workers_.per_rank),
          .num_slots = static_cast<int>(std::max<int64_t>(data.prefetch, 2 * accumulation)),
          .allocate = [page_locked](size_t bytes) { return allocate_slot(bytes, page_locked); },
          .skip_broken_rows = data.on_error == "skip"};
}

std::unique_ptr<data::Loader> Trainer::make_loader(std::shared_ptr<const data::Dataset> dataset, const data::SampleRequest& request,
                                                   const data::Sampler& sampler, int64_t first_step, int64_t last_step, int64_t accumulation) const {
  const auto plan = [this, sampler, first_step, last_step, accumulation](int64_t k) -> std::optional<data::MicroBatch> {
    const int64_t step = first_step + k / accumulation;
    if (step >= last_step) return std::nullopt;
    return sampler.micro_batch(step, k % accumulation, accumulation, world_.rank(), world_.size());
  };
  return std::make_unique<data::Loader>(std::move(dataset), request, plan, loader_options(accumulation));
}

}  // namespace vla
