// Learning rate as a factor of the peak. All but `plateau` are pure functions of the step with nothing to save; plateau
// remembers validation losses. A schedule's length is fixed when it is made; a resumed run passes the length of the
// first one. Same on all ranks if they observe the same losses. Bad options throw UsageError. No Torch.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/optim/options.hpp"

namespace vla {

class LrSchedule {
 public:
  // `peak_lr` turns rates of the options into factors; `total_steps` is the length of training.
  LrSchedule(const SchedulerOptions& options, double peak_lr, int64_t total_steps);

  // For the update number `step` = 0, 1, ….
  double factor(int64_t step) const { return factor_(shape_, step); }

  // After every validation. Only plateau listens; it is useless without.
  void observe(double validation_loss);
  bool needs_validation() const;

  // What observe() has changed, by name; empty for the others. load_state of an empty map changes nothing.
  std::map<std::string, double> state() const;
  void load_state(const std::map<std::string, double>& state);

  struct Plateau {  // torch.optim.lr_scheduler.ReduceLROnPlateau, mode min, threshold_mode rel
    double scale = 1;
    double best = std::numeric_limits<double>::max();  // finite: JSON has no infinity
    double bad_validations = 0, cooldown = 0;
  };
  struct Shape {
    SchedulerOptions options;
    double peak = 1;  // learning rate of factor 1
    int64_t warmup = 0;
    int64_t end = 1;  // step at which the decay ends, at least 1
    double floor = 0;  // factor of decay_lr
    std::vector<std::pair<int64_t, double>> pieces = {};  // (first step beyond, factor), ascending
    Plateau plateau = {};
  };

 private:
  Shape shape_;
  double (*factor_)(const Shape& shape, int64_t step);
};

std::vector<std::string> lr_schedule_names();
// Names and the class names of other programs.
std::vector<std::string> lr_schedule_spellings();
std::vector<std::string> diffusers_schedule_names();

}  // namespace vla
