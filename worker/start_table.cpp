#include "worker/start_table.hpp"

#include <algorithm>

#include <fmt/ranges.h>

namespace vla {
namespace {

// "cuda:1 NVIDIA H100" without the number.
std::string kind_of(const std::string& device) {
  const size_t space = device.find(' ');
  return space == std::string::npos ? device : device.substr(space + 1);
}

bool are_alike(const std::vector<std::string>& devices) {
  return std::ranges::all_of(devices, [&](const auto& device) { return kind_of(device) == kind_of(devices.front()); });
}

std::vector<std::string> more_warnings(const TrainConfig& config, const StartInfo& info) {
  std::vector<std::string> warnings;
  const bool on_gpu = !info.devices.empty() && info.devices.front().starts_with("cuda");
  if (on_gpu && info.batch.per_gpu < 4 && info.world_size > 1) {
    warnings.push_back(fmt::format("each GPU computes only {} rows at a time and spends its time waiting; raise training.batch_size or use "
                                   "fewer ranks",
                                   info.batch.per_gpu));
  }
  if (!are_alike(info.devices)) {
    warnings.push_back(fmt::format("the ranks' devices differ ({}): every step takes as long as on the slowest", fmt::join(info.devices, ", ")));
  }
  if (const int64_t rest = info.training_frames % info.batch.effective; rest != 0 && info.training_frames > 0) {
    warnings.push_back(fmt::format("{} frames do not divide by the effective batch of {}: the last step of every epoch {} {}", info.training_frames,
                                   info.batch.effective, config.training.drop_last ? "would have had" : "has",
                                   config.training.drop_last ? fmt::format("{} frames, which are left out", rest) : fmt::format("{} frames", rest)));
  }
  return warnings;
}

}  // namespace

std::vector<std::string> start_lines(const TrainConfig& config, const StartInfo& info) {
  const TrainingOptions& training = config.training;
  const std::string address = info.world_size > 1 ? fmt::format(" addr={}:{}", info.master_addr, info.master_port) : "";
  const BatchPlan& batch = info.batch;
  const double epochs = static_cast<double>(info.total_steps) / static_cast<double>(std::max<int64_t>(1, info.steps_per_epoch));
  std::vector<std::string> lines;
  const auto row = [&](const char* label, const std::string& text) { lines.push_back(fmt::format("  {:<11}{}", label, text)); };

  row("policy", fmt::format("policy={} config={}", config.policy.type, info.config_path.empty() ? "none" : info.config_path));
  const std::string devices = are_alike(info.devices) && !info.devices.empty() ? kind_of(info.devices.front()) : fmt::format("{}", fmt::join(info.devices, ", "));
  row("ranks", fmt::format("{} on {}, backend={}{}", info.world_size, devices, info.backend, address));
  row("batch", fmt::format("batch_size={} mode={} world={} accum={} per_gpu={} effective={}", training.batch_size, training.batch_size_mode,
                           info.world_size, batch.accumulation, batch.per_gpu, batch.effective));
  row("", fmt::format("{} samples a step = {} of a forward pass x {} accumulated; {} rows on each of {} ranks", batch.effective, batch.global,
                      batch.accumulation, batch.per_gpu, info.world_size));
  row("dataset", fmt::format("{}: {} episodes, {} frames to train on, {} held out{}", info.dataset, info.episodes, info.training_frames,
                             info.validation_frames, info.broken_episodes > 0 ? fmt::format("; {} broken episodes left out", info.broken_episodes) : ""));
  row("steps", fmt::format("steps={} = {:.2f} epochs of {} steps{}", info.total_steps, epochs, info.steps_per_epoch,
                           info.first_step > 0 ? fmt::format("; {} are done", info.first_step) : ""));
  row("lr", fmt::format("lr base={} scaling={} factor={} final={}; {}, {}, warm-up of {} steps", info.lr.base, training.lr_scaling,
                        info.lr.factor, info.lr.lr, config.optimizer.type, config.scheduler.type, config.scheduler.warmup_steps));
  row("precision", fmt::format("precision={}", info.precision));
  row("parameters", fmt::format("{} ({} trainable)", info.parameters, info.trainable));
  row("workers", fmt::format("workers per_rank={} total={}", info.workers.per_rank, info.workers.total));
  row("output", fmt::format("output_dir={}", config.output_dir));
  const auto more = more_warnings(config, info);
  for (const auto* warnings : {&batch.warnings, &info.lr.warnings, &info.workers.warnings, &more}) {
    for (const std::string& warning : *warnings) lines.push_back("warning: " + warning);
  }
  return lines;
}

}  // namespace vla
