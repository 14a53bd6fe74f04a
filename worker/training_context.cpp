#include "worker/training_context.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace vla {
namespace {

constexpr size_t kSamplesShown = 64;

}  // namespace

std::string describe(const TrainingPosition& position) {
  if (position.step == 0 && position.phase.empty()) return "";
  std::string text = fmt::format("rank {}", position.rank);
  if (position.step > 0) text += fmt::format(", step {} of {}", position.step, position.total_steps);
  if (!position.phase.empty()) text += ", " + position.phase;
  if (!position.samples.empty()) {
    const auto shown = position.samples.begin() + static_cast<ptrdiff_t>(std::min(position.samples.size(), kSamplesShown));
    text += fmt::format(", samples {}", fmt::join(position.samples.begin(), shown, " "));
    if (shown != position.samples.end()) text += fmt::format(" and {} more", position.samples.end() - shown);
  }
  return text;
}

std::string describe(const TrainingSizes& sizes) {
  if (sizes.per_gpu == 0) return "";
  return fmt::format(
      "training.batch_size={} ({} per rank on {} ranks), training.gradient_accumulation_steps={}, {} samples per step, "
      "training.num_workers={}, {} on {}",
      sizes.batch_size, sizes.per_gpu, sizes.world_size, sizes.accumulation, sizes.effective, sizes.num_workers, sizes.precision, sizes.device);
}

void TrainingContext::set_sizes(int64_t rank, TrainingSizes sizes) {
  const std::lock_guard lock(mutex_);
  position_.rank = rank;
  position_.sizes = std::move(sizes);
}

void TrainingContext::begin_step(int64_t step, int64_t total_steps) {
  const std::lock_guard lock(mutex_);
  position_.step = step;
  position_.total_steps = total_steps;
  position_.samples.clear();
}

void TrainingContext::enter(std::string phase) {
  const std::lock_guard lock(mutex_);
  position_.phase = std::move(phase);
}

void TrainingContext::set_samples(std::vector<int64_t> samples) {
  const std::lock_guard lock(mutex_);
  position_.samples = std::move(samples);
}

TrainingPosition TrainingContext::position() const {
  const std::lock_guard lock(mutex_);
  return position_;
}

TrainingContext& training_context() {
  static TrainingContext context;
  return context;
}

}  // namespace vla
