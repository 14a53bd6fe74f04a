#include "worker/optim/options.hpp"

#include "worker/optim/lr_schedule.hpp"

namespace vla {

void OptimizerOptions::describe(cxxrun::OptionTable& table) {
  table.add("type", type, "update rule: adamw decays weights directly, adam adds the decay to the gradient")
      .one_of({"adamw", "adam"});
  table.add("lr", lr, "peak learning rate").at_least(0);
  table.add("beta1", beta1, "decay of the first moment, below 1").at_least(0).at_most(1);
  table.add("beta2", beta2, "decay of the second moment, below 1").at_least(0).at_most(1);
  table.add("eps", eps, "added to the denominator").at_least(0);
  table.add("weight_decay", weight_decay, "weight decay").at_least(0);
  table.add("grad_clip_norm", grad_clip_norm, "largest global norm of the gradient; 0 = no clipping").at_least(0);
}

void SchedulerOptions::describe(cxxrun::OptionTable& table) {
  table.add("type", type, "shape of the learning rate after warm-up").one_of(lr_schedule_names());
  table.add("warmup_steps", warmup_steps, "the learning rate rises linearly over this many steps")
      .in("steps")
      .at_least(0);
  table.add("decay_steps", decay_steps, "step at which the decay ends; 0 = at the end of training")
      .in("steps")
      .at_least(0);
  table.add("decay_lr", decay_lr, "learning rate at the end of the decay").at_least(0);
}

}  // namespace vla
