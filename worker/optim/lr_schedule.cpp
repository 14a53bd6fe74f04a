#include "worker/optim/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/registry.hpp"

namespace vla {
namespace {

using Shape = LrSchedule::Shape;

double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }
double half_cosine(double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * progress)); }

// Share of the decay that is done, 0 at the end of warm-up.
double progress_after_warmup(const Shape& shape, int64_t step) {
  return ratio(std::min(step, shape.end) - shape.warmup, std::max<int64_t>(1, shape.end - shape.warmup));
}

// The first three are those of diffusers 0.39 (get_scheduler), whose first update has a factor of 0 if there is a
// warm-up.
double constant(const Shape& shape, int64_t step) { return step < shape.warmup ? ratio(step, shape.warmup) : 1; }

double linear(const Shape& shape, int64_t step) {
  if (step < shape.warmup) return ratio(step, shape.warmup);
  return (1 - shape.floor) * std::max(0.0, 1 - progress_after_warmup(shape, step)) + shape.floor;
}

double cosine(const Shape& shape, int64_t step) {
  if (step < shape.warmup) return ratio(step, shape.warmup);
  return (1 - shape.floor) * half_cosine(std::min(1.0, progress_after_warmup(shape, step))) + shape.floor;
}

// LeRobot 0.6.1, CosineDecayWithWarmupSchedulerConfig: the cosine starts at step 0, not at the end of the warm-up.
double cosine_decay_with_warmup(const Shape& shape, int64_t step) {
  if (step < shape.warmup) {
    const double first = 1.0 / static_cast<double>(shape.warmup + 1);
    return step == 0 ? first : (first - 1) * (1 - ratio(step, shape.warmup)) + 1;
  }
  return (1 - shape.floor) * half_cosine(ratio(std::min(step, shape.end), shape.end)) + shape.floor;
}

struct ScheduleRow {
  const char* name;
  double (*factor)(const Shape&, int64_t);
  bool fits_training;  // shrinks warm-up and decay when training is shorter than decay_steps
};

constexpr ScheduleRow kSchedules[] = {
    {"constant", constant, false},
    {"linear", linear, false},
    {"cosine", cosine, false},
    {"cosine_decay_with_warmup", cosine_decay_with_warmup, true},
};

}  // namespace

LrSchedule::LrSchedule(const SchedulerOptions& options, double peak_lr, int64_t total_steps) {
  const ScheduleRow& row = cxxrun::find_in_registry(kSchedules, options.type, "scheduler.type");
  factor_ = row.factor;
  shape_.warmup = options.warmup_steps;
  shape_.end = std::max<int64_t>(1, options.decay_steps > 0 ? options.decay_steps : total_steps);
  shape_.floor = peak_lr > 0 ? options.decay_lr / peak_lr : 0;
  if (shape_.floor > 1) {
    throw cxxrun::UsageError("scheduler.decay_lr={} is above the peak optimizer.lr={}: lower it", options.decay_lr,
                             peak_lr);
  }
  if (row.fits_training && total_steps < options.decay_steps) {
    shape_.warmup = static_cast<int64_t>(static_cast<double>(shape_.warmup * total_steps) /
                                         static_cast<double>(options.decay_steps));
    shape_.end = std::max<int64_t>(1, total_steps);
  }
}

double LrSchedule::factor(int64_t step) const { return factor_(shape_, step); }

std::vector<std::string> lr_schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleRow& row : kSchedules) names.emplace_back(row.name);
  return names;
}

}  // namespace vla
