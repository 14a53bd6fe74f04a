#include "worker/optim/options.hpp"

#include <cctype>
#include <span>

#include "common/registry.hpp"
#include "worker/optim/lr_schedule.hpp"

namespace vla {
namespace {

struct PrecisionRow {
  std::string_view name;
  std::string_view means;
};

// In lower case, without "torch." and with '-' for '_'.
constexpr PrecisionRow kPrecisions[] = {
    {"fp32", "fp32"},
    {"tf32", "tf32"},
    {"bf16-mixed", "bf16-mixed"},
    {"fp16-mixed", "fp16-mixed"},
    {"bf16-true", "bf16-true"},
    {"float32", "fp32"},
    {"float", "fp32"},
    {"no", "fp32"},
    {"none", "fp32"},
    {"false", "fp32"},
    {"off", "fp32"},
    {"32", "fp32"},
    {"32-true", "fp32"},
    {"bf16", "bf16-mixed"},
    {"bfloat16", "bf16-mixed"},
    {"bfp16", "bf16-mixed"},
    {"fp16", "fp16-mixed"},
    {"float16", "fp16-mixed"},
    {"half", "fp16-mixed"},
    {"16", "fp16-mixed"},
    {"16-mixed", "fp16-mixed"},
    {"pure-bf16", "bf16-true"},
};
constexpr size_t kPrecisionNames = 5;  // the first rows

}  // namespace

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const PrecisionRow& row : std::span(kPrecisions).first<kPrecisionNames>()) names.emplace_back(row.name);
  return names;
}

std::string parse_precision(std::string_view text, std::string_view key) {
  std::string word;
  for (const char c : text) {
    word += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (word.starts_with("torch.")) word.erase(0, 6);
  for (const PrecisionRow& row : kPrecisions) {
    if (row.name == word) return std::string(row.means);
  }
  const std::vector<std::string> names = precision_names();
  throw cxxrun::UsageError("unknown {} '{}' (known: {}){}", key, text, fmt::join(names, ", "),
                           cxxrun::did_you_mean(word, {names.begin(), names.end()}));
}

void OptimizerOptions::describe(cxxrun::OptionTable& table) {
  table.add("type", type, "update rule: adamw decays weights directly, adam adds the decay to the gradient")
      .one_of({"adamw", "adam"});
  table.add("lr", lr, "peak learning rate").at_least(0);
  table.add("beta1", beta1, "decay of the first moment, below 1").at_least(0).at_most(1);
  table.add("beta2", beta2, "decay of the second moment, below 1").at_least(0).at_most(1);
  table.add("eps", eps, "added to the denominator").at_least(0);
  table.add("weight_decay", weight_decay, "weight decay").at_least(0);
  table.add("grad_clip_norm", grad_clip_norm, "largest global norm of the gradient; 0 = no clipping").at_least(0);
  table.add("master_weights", master_weights,
            "of 16-bit parameters, keep float32 copies and moments, and update those; without, small updates round to "
            "nothing");
}

void SchedulerOptions::describe(cxxrun::OptionTable& table) {
  table.add("type", type, "shape of the learning rate after warm-up; torch's and LeRobot's class names work too")
      .one_of(lr_schedule_spellings());
  table.add("warmup_steps", warmup_steps, "the learning rate rises linearly over this many steps")
      .in("steps")
      .at_least(0);
  table.add("decay_steps", decay_steps, "step at which the decay ends (T_max); 0 = at the end of training")
      .in("steps")
      .at_least(0);
  table.add("decay_lr", decay_lr, "learning rate at the end of the decay (eta_min)").at_least(0);
  table.add("name", name, "of diffuser: which of diffusers' schedules").one_of(diffusers_schedule_names());
  table.add("lr_end", lr_end, "of polynomial: learning rate at the end").at_least(0);
  table.add("power", power, "of polynomial: exponent").at_least(0);
  table.add("num_cycles", num_cycles, "of cosine_with_restarts: number of cosines").at_least(1);
  table.add("step_rules", step_rules,
            "of piecewise_constant: 1:10,0.1:20,0.01 = factor 1 up to step 10, 0.1 up to step 20, then 0.01");
  table.add("gamma", gamma, "of step, multi_step and exponential: factor of every decay").at_least(0).at_most(1);
  table.add("step_size", step_size, "of step: a decay every so many steps").in("steps").at_least(0);
  table.add("milestones", milestones, "of multi_step: the steps at which it decays").in("steps").at_least(0);
  table.add("start_factor", start_factor, "of linear_ramp: factor of the first step").at_least(0).at_most(1);
  table.add("end_factor", end_factor, "of linear_ramp: factor from decay_steps on").at_least(0).at_most(1);
  table.add("max_lr", max_lr, "of one_cycle: highest learning rate; 0 = optimizer.lr").at_least(0);
  table.add("pct_start", pct_start, "of one_cycle: share of the steps in which the rate rises").at_least(0).at_most(1);
  table.add("div_factor", div_factor, "of one_cycle: it starts at max_lr divided by this").at_least(1);
  table.add("final_div_factor", final_div_factor, "of one_cycle: it ends at the starting rate divided by this")
      .at_least(1);
  table.add("factor", factor, "of plateau: factor of every decay, below 1").at_least(0).at_most(1);
  table.add("patience", patience, "of plateau: validations without improvement that are tolerated").at_least(0);
  table.add("threshold", threshold, "of plateau: relative decrease of the validation loss that counts").at_least(0);
  table.add("cooldown", cooldown, "of plateau: validations after a decay before it counts again").at_least(0);
  table.add("min_lr", min_lr, "of plateau: lowest learning rate").at_least(0);
}

void EmaOptions::describe(cxxrun::OptionTable& table) {
  table.add("enable", enable, "keep an exponential moving average of the weights, validate with it and save it");
  table
      .add("type", type,
           "diffusers: EMAModel of diffusers, as LeRobot uses it; diffusion_policy: that of diffusion_policy and RDT, "
           "one update later and without batch norms")
      .one_of({"diffusers", "diffusion_policy"});
  table.add("decay", decay, "largest decay (max_value)").at_least(0).at_most(1);
  table.add("min_decay", min_decay, "smallest decay (min_value); equal to decay: constant").at_least(0).at_most(1);
  table.add("use_ema_warmup", use_ema_warmup,
            "the decay of update s is 1-(1+s/inv_gamma)^-power; false = (1+s)/(10+s), of diffusers only");
  table.add("inv_gamma", inv_gamma, "stretches the warm-up of the decay").at_least(1e-9);
  table.add("power", power, "exponent of the warm-up of the decay").at_least(0);
  table.add("update_after_step", update_after_step, "until then the average is the weights themselves")
      .in("steps")
      .at_least(0);
}

void GradScalerOptions::describe(cxxrun::OptionTable& table) {
  table.add("init_scale", init_scale, "of fp16-mixed: the loss is multiplied by this at first").at_least(1);
  table.add("growth_factor", growth_factor, "after growth_interval good steps the scale is multiplied by this")
      .at_least(1);
  table.add("backoff_factor", backoff_factor, "after an overflow the scale is multiplied by this")
      .at_least(0)
      .at_most(1);
  table.add("growth_interval", growth_interval, "good steps in a row until the scale grows").in("steps").at_least(1);
}

}  // namespace vla
