// Learning rate as a factor of the peak, a pure function of the step: nothing to save or restore. A schedule's length
// is fixed when it is made; a resumed run passes the length of the first one. Immutable. Bad options throw UsageError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/optim/options.hpp"

namespace vla {

class LrSchedule {
 public:
  // `peak_lr` turns decay_lr into a factor; `total_steps` is the length of training.
  LrSchedule(const SchedulerOptions& options, double peak_lr, int64_t total_steps);

  // For the update number `step` = 0, 1, ….
  double factor(int64_t step) const;

  struct Shape {
    int64_t warmup = 0;
    int64_t end = 1;  // step at which the decay ends, at least 1
    double floor = 0;  // factor from there on
  };

 private:
  Shape shape_;
  double (*factor_)(const Shape& shape, int64_t step);
};

std::vector<std::string> lr_schedule_names();

}  // namespace vla
