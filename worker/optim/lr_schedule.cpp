#include "worker/optim/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>

#include "common/registry.hpp"

namespace vla {
namespace {

using Shape = LrSchedule::Shape;
using cxxrun::UsageError;

double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }
double half_cosine(double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * progress)); }
double between(double from, double to, double progress) { return to + (from - to) * half_cosine(progress); }

// Those of diffusers 0.39 (get_scheduler): the first update has a factor of 0 if there is a warm-up, and the decay
// begins where the warm-up ends. `after` gets the share of the decay that is done, in [0, 1].
template <double (*after)(const Shape&, double)>
double warmed_up(const Shape& shape, int64_t step) {
  if (step < shape.warmup) return ratio(step, shape.warmup);
  return after(shape, step < shape.end ? ratio(step - shape.warmup, shape.end - shape.warmup) : 1);
}

double hold(const Shape&, double) { return 1; }
double line(const Shape& shape, double progress) { return 1 + (shape.floor - 1) * progress; }
double cosine(const Shape& shape, double progress) { return between(1, shape.floor, progress); }

double cosine_with_restarts(const Shape& shape, double progress) {
  if (progress == 1) return shape.floor;
  return between(1, shape.floor, std::fmod(static_cast<double>(shape.options.num_cycles) * progress, 1.0));
}

double polynomial(const Shape& shape, double progress) {
  const double end = shape.options.lr_end / shape.peak;
  return (1 - end) * std::pow(1 - progress, shape.options.power) + end;
}

// Those of torch.optim.lr_scheduler 2.11 count from the start of training, also while the warm-up reduces them.
template <double (*schedule)(const Shape&, int64_t)>
double times_warmup(const Shape& shape, int64_t step) {
  return warmed_up<hold>(shape, step) * schedule(shape, step);
}

double piecewise_constant(const Shape& shape, int64_t step) {
  for (const auto& [beyond, factor] : shape.pieces) {
    if (step < beyond) return factor;
  }
  return shape.pieces.back().second;
}

double step_decay(const Shape& shape, int64_t step) {
  return std::pow(shape.options.gamma, static_cast<double>(step / shape.options.step_size));
}

double exponential(const Shape& shape, int64_t step) {
  return std::pow(shape.options.gamma, static_cast<double>(step));
}

// Rises again after decay_steps, as torch's does.
double cosine_annealing(const Shape& shape, int64_t step) { return between(1, shape.floor, ratio(step, shape.end)); }

double linear_ramp(const Shape& shape, int64_t step) {
  const SchedulerOptions& o = shape.options;
  return o.start_factor + (o.end_factor - o.start_factor) * ratio(std::min(step, shape.end), shape.end);
}

double one_cycle(const Shape& shape, int64_t step) {
  const SchedulerOptions& o = shape.options;
  const double highest = o.max_lr > 0 ? o.max_lr / shape.peak : 1, first = highest / o.div_factor;
  const double last_step = std::max(1.0, static_cast<double>(shape.end - 1));
  const double turn = o.pct_start * static_cast<double>(shape.end) - 1;
  const double now = std::min(static_cast<double>(step), last_step);
  if (turn > 0 && now <= turn) return between(first, highest, now / turn);
  if (now >= last_step) return first / o.final_div_factor;
  return between(highest, first / o.final_div_factor, (now - turn) / (last_step - turn));
}

double plateau(const Shape& shape, int64_t) { return shape.plateau.scale; }

// LeRobot 0.6.1, CosineDecayWithWarmupSchedulerConfig: the cosine starts at step 0, not at the end of the warm-up.
double cosine_decay_with_warmup(const Shape& shape, int64_t step) {
  if (step < shape.warmup) {
    const double first = 1.0 / static_cast<double>(shape.warmup + 1);
    return step == 0 ? first : (first - 1) * (1 - ratio(step, shape.warmup)) + 1;
  }
  return between(1, shape.floor, ratio(std::min(step, shape.end), shape.end));
}

void check_polynomial(Shape& shape) {
  if (shape.options.lr_end >= shape.peak)
    throw UsageError("scheduler.lr_end={} must be below optimizer.lr={}", shape.options.lr_end, shape.peak);
}

void check_step_size(Shape& shape) {
  if (shape.options.step_size < 1)
    throw UsageError("scheduler.type=step needs scheduler.step_size, the number of steps between decays");
}

void check_plateau(Shape& shape) {
  if (shape.options.factor >= 1) throw UsageError("scheduler.factor={} must be below 1", shape.options.factor);
}

// As torch counts, a step that is listed twice decays twice.
void make_milestones(Shape& shape) {
  std::vector<int64_t> steps = shape.options.milestones;
  if (steps.empty()) throw UsageError("scheduler.type=multi_step needs scheduler.milestones, a list of steps");
  std::ranges::sort(steps);
  for (size_t i = 0; i <= steps.size(); ++i) {
    shape.pieces.emplace_back(i < steps.size() ? steps[i] : 0, std::pow(shape.options.gamma, static_cast<double>(i)));
  }
}

void parse_step_rules(Shape& shape) {
  const std::string& rules = shape.options.step_rules;
  const auto refuse = [&] {
    throw UsageError(
        "scheduler.step_rules='{}': expected FACTOR:STEP,FACTOR:STEP,…,FACTOR, for example 1:1000,0.1:2000,0.01",
        rules);
  };
  std::istringstream in(rules);
  for (;;) {
    double factor = 0;
    int64_t beyond = 0;
    char separator = 0;
    if (!(in >> factor) || !(factor >= 0)) refuse();
    if (in >> separator && (separator != ':' || !(in >> beyond) || !(in >> separator) || separator != ',')) refuse();
    shape.pieces.emplace_back(beyond, factor);
    if (separator == 0) break;
  }
  std::sort(shape.pieces.begin(), shape.pieces.end() - 1);
}

struct ScheduleRow {
  const char* name;
  double (*factor)(const Shape&, int64_t);
  std::string_view spelling = {};  // another program's
  bool is_diffusers = false;
  void (*prepare)(Shape&) = nullptr;
};

constexpr char kDiffuser[] = "diffuser";  // LeRobot's type for what `name` says

constexpr ScheduleRow kSchedules[] = {
    // diffusers' `constant` has no warm-up; a warm-up that is asked for is done here.
    {"constant", warmed_up<hold>, {}, true},
    {"constant_with_warmup", warmed_up<hold>, {}, true},
    {"linear", warmed_up<line>, {}, true},
    {"cosine", warmed_up<cosine>, "cosine_annealing_with_warmup", true},
    {"cosine_with_restarts", warmed_up<cosine_with_restarts>, {}, true},
    {"polynomial", warmed_up<polynomial>, {}, true, check_polynomial},
    {"piecewise_constant", times_warmup<piecewise_constant>, {}, true, parse_step_rules},
    {"cosine_decay_with_warmup", cosine_decay_with_warmup},
    {"step", times_warmup<step_decay>, "StepLR", false, check_step_size},
    {"multi_step", times_warmup<piecewise_constant>, "MultiStepLR", false, make_milestones},
    {"exponential", times_warmup<exponential>, "ExponentialLR"},
    {"cosine_annealing", times_warmup<cosine_annealing>, "CosineAnnealingLR"},
    {"linear_ramp", times_warmup<linear_ramp>, "LinearLR"},
    {"one_cycle", times_warmup<one_cycle>, "OneCycleLR"},
    {"plateau", times_warmup<plateau>, "ReduceLROnPlateau", false, check_plateau},
};

std::string_view name_of(const SchedulerOptions& options) {
  const std::string& wanted = options.type == kDiffuser ? options.name : options.type;
  for (const ScheduleRow& row : kSchedules) {
    if (!row.spelling.empty() && wanted == row.spelling) return row.name;
  }
  return wanted;
}

}  // namespace

LrSchedule::LrSchedule(const SchedulerOptions& options, double peak_lr, int64_t total_steps) {
  const ScheduleRow& row = cxxrun::find_in_registry(kSchedules, name_of(options), "scheduler.type");
  factor_ = row.factor;
  shape_.options = options;
  shape_.peak = peak_lr > 0 ? peak_lr : 1;
  shape_.warmup = options.warmup_steps;
  shape_.end = std::max<int64_t>(1, options.decay_steps > 0 ? options.decay_steps : total_steps);
  shape_.floor = options.decay_lr / shape_.peak;
  if (shape_.floor > 1) {
    throw UsageError("scheduler.decay_lr={} is above the peak optimizer.lr={}: lower it", options.decay_lr, peak_lr);
  }
  if (factor_ == &cosine_decay_with_warmup && total_steps < options.decay_steps) {
    shape_.warmup = static_cast<int64_t>(static_cast<double>(shape_.warmup * total_steps) /
                                         static_cast<double>(options.decay_steps));
    shape_.end = std::max<int64_t>(1, total_steps);
  }
  if (row.prepare) row.prepare(shape_);
}

bool LrSchedule::needs_validation() const { return factor_ == &times_warmup<plateau>; }

void LrSchedule::observe(double validation_loss) {
  if (!needs_validation()) return;
  const SchedulerOptions& o = shape_.options;
  Plateau& p = shape_.plateau;
  const bool is_better = validation_loss < p.best * (1 - o.threshold);
  if (is_better) p.best = validation_loss;
  p.bad_validations = is_better ? 0 : p.bad_validations + 1;
  if (p.cooldown > 0) {
    --p.cooldown;
    p.bad_validations = 0;
  }
  if (p.bad_validations <= static_cast<double>(o.patience)) return;
  p.cooldown = static_cast<double>(o.cooldown);
  p.bad_validations = 0;
  const double reduced = std::max(p.scale * o.factor, o.min_lr / shape_.peak);
  if ((p.scale - reduced) * shape_.peak > 1e-8) p.scale = reduced;
}

namespace {
constexpr std::pair<const char*, double LrSchedule::Plateau::*> kPlateauState[] = {
    {"scale", &LrSchedule::Plateau::scale},
    {"best", &LrSchedule::Plateau::best},
    {"bad_validations", &LrSchedule::Plateau::bad_validations},
    {"cooldown", &LrSchedule::Plateau::cooldown},
};
}  // namespace

std::map<std::string, double> LrSchedule::state() const {
  std::map<std::string, double> state;
  if (!needs_validation()) return state;
  for (const auto& [name, member] : kPlateauState) state[name] = shape_.plateau.*member;
  return state;
}

void LrSchedule::load_state(const std::map<std::string, double>& state) {
  if (!needs_validation() || state.empty()) return;
  Plateau loaded;
  for (const auto& [name, member] : kPlateauState) {
    const auto found = state.find(name);
    if (found == state.end() || !std::isfinite(found->second) ||
        (name != std::string_view("best") && found->second < 0))
      throw cxxrun::Error("the state of scheduler.type=plateau has no valid '{}'", name);
    loaded.*member = found->second;
  }
  shape_.plateau = loaded;
}

std::vector<std::string> lr_schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleRow& row : kSchedules) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> lr_schedule_spellings() {
  std::vector<std::string> names = lr_schedule_names();
  names.emplace_back(kDiffuser);
  for (const ScheduleRow& row : kSchedules) {
    if (!row.spelling.empty()) names.emplace_back(row.spelling);
  }
  return names;
}

std::vector<std::string> diffusers_schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleRow& row : kSchedules) {
    if (row.is_diffusers) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace vla
