#include "worker/config_aliases.hpp"

#include <algorithm>
#include <optional>

#include "common/error.hpp"
#include "worker/optim/options.hpp"

namespace vla {
namespace {

using cxxrun::Setting;
using cxxrun::UsageError;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  return text;
}

std::string batch_size_mode(const Setting& setting) { return cxxrun::parse_bool(setting) ? "total" : "per_gpu"; }

std::string resume(const Setting& setting) {
  const std::string text = lower(setting.text());
  if (is_one_of(text, {"true", "yes", "on", "1", "latest"})) return "true";
  if (is_one_of(text, {"false", "no", "off", "0"})) return "";
  return text == "auto" ? text : setting.text();
}

std::string resume_if_possible(const Setting& setting) { return cxxrun::parse_bool(setting) ? "auto" : ""; }

std::string precision(const Setting& setting) { return parse_precision(setting.text(), fmt::format("{}: {}", setting.source, setting.name)); }

std::string reported_to_wandb(const Setting& setting) {
  const std::string text = lower(setting.text());
  if (is_one_of(text, {"wandb", "all"})) return "true";
  if (is_one_of(text, {"none", "tensorboard", ""})) return "false";
  throw UsageError("{}: {}='{}' is not known: wandb, none, or logging.sinks for what else there is", setting.source, setting.name, setting.text());
}

std::string wandb_mode(const Setting& setting) {
  const std::string text = lower(setting.text());
  return is_one_of(text, {"", "true", "null"}) ? "auto" : text;
}

std::string only_false(const Setting& setting) {
  if (!cxxrun::parse_bool(setting)) return "";
  throw UsageError("{}: {}='{}': not supported; set it to false", setting.source, setting.name, setting.text());
}

std::string only_true(const Setting& setting) {
  if (cxxrun::parse_bool(setting)) return "";
  throw UsageError("{}: {}='{}': not supported; set it to true", setting.source, setting.name, setting.text());
}

constexpr char kPython[] = "has no effect: it tunes Python's data loading, which is not used here";
constexpr char kDdp[] = "has no effect: the number of ranks alone decides";
constexpr char kArtifacts[] = "has no effect: weights are not uploaded";
constexpr char kTask[] = "has no effect: dataset.root says what is trained on";
constexpr char kHub[] = "has no effect: nothing is uploaded";
constexpr char kSimulator[] = "has no effect: there is no simulator; training.val_freq validates on held-out episodes";

constexpr char kUseMixed[] = "training.use_mixed_precision";
constexpr char kMixedDtype[] = "training.mixed_precision_dtype";

constexpr ConfigAlias kAliases[] = {
    // LeRobot's batch_size is that of one process; here training.batch_size_mode decides, and its default is the total.
    {"batch_size", "training.batch_size"},
    {"train_batch_size", "training.batch_size"},
    {"data.batch_size", "training.batch_size"},
    {"dataloader.batch_size", "training.batch_size"},
    {"batch_size_mode", "training.batch_size_mode"},
    {"keep_effective_batch_size", "training.batch_size_mode", batch_size_mode, nullptr, true},
    {"gradient_accumulation_steps", "training.gradient_accumulation_steps"},
    {"accumulation_steps", "training.gradient_accumulation_steps"},
    {"training.accumulation_steps", "training.gradient_accumulation_steps"},
    {"training.gradient_accumulate_every", "training.gradient_accumulation_steps"},
    {"lr", "optimizer.lr"},
    {"learning_rate", "optimizer.lr"},
    {"training.lr", "optimizer.lr"},
    {"training.learning_rate", "optimizer.lr"},
    {"lr_scaling", "training.lr_scaling"},
    {"weight_decay", "optimizer.weight_decay"},
    {"training.weight_decay", "optimizer.weight_decay"},
    {"max_grad_norm", "optimizer.grad_clip_norm"},
    {"training.grad_clip_norm", "optimizer.grad_clip_norm"},
    {"lr_scheduler", "scheduler.type"},
    {"training.lr_scheduler", "scheduler.type"},
    {"lr_warmup_steps", "scheduler.warmup_steps"},
    {"training.lr_warmup_steps", "scheduler.warmup_steps"},
    {"lr_num_cycles", "scheduler.num_cycles"},
    {"lr_power", "scheduler.power"},
    {"scheduler.num_warmup_steps", "scheduler.warmup_steps"},
    {"scheduler.num_decay_steps", "scheduler.decay_steps"},
    {"num_workers", "training.num_workers"},
    {"dataloader_num_workers", "training.num_workers"},
    {"data.num_workers", "training.num_workers"},
    {"dataloader.num_workers", "training.num_workers"},
    {"steps", "training.steps"},
    {"max_steps", "training.steps"},
    {"max_train_steps", "training.steps"},
    {"training.max_train_steps", "training.steps"},
    {"epochs", "training.epochs"},
    {"num_epochs", "training.epochs"},
    {"training.num_epochs", "training.epochs"},
    {"save_freq", "training.save_freq"},
    {"checkpointing_period", "training.save_freq"},
    {"training.save_every_n_steps", "training.save_freq"},
    {"training.checkpoint_every", "training.save_epochs"},
    {"training.save_checkpoint_interval", "training.save_epochs"},
    {"checkpoints_total_limit", "training.keep_checkpoints"},
    {"log_freq", "training.log_freq"},
    {"timing", "logging.timing", nullptr, nullptr, true},
    {"profile", "logging.profile_steps"},
    {"training.log_interval", "training.log_freq"},
    {"val_freq", "training.val_freq"},
    {"eval_steps", "training.val_freq"},
    {"seed", "training.seed"},
    {"drop_last", "training.drop_last", nullptr, nullptr, true},
    {"data.drop_last", "training.drop_last"},
    {"dataloader.drop_last", "training.drop_last"},
    {"find_unused_parameters", "training.find_unused_parameters", nullptr, nullptr, true},
    {"bucket_cap_mb", "training.bucket_mb"},
    {"dtype", "training.dtype"},
    {"training.precision", "training.precision", precision},
    {"precision", "training.precision", precision},
    {"mixed_precision", "training.precision", precision},
    {"accelerator.mixed_precision", "training.precision", precision},
    {"model.vlm_config.dtype", "training.precision", precision},
    // Two settings that make one: see join_mixed_precision().
    {"use_mixed_precision", kUseMixed, nullptr, nullptr, true},
    {"training.use_mixed_precision", kUseMixed},
    {"policy.use_amp", kUseMixed, nullptr, nullptr, true},
    {"mixed_precision_dtype", kMixedDtype, precision},
    {"training.mixed_precision_dtype", kMixedDtype, precision},
    {"use_ema", "ema.enable", nullptr, nullptr, true},
    {"training.use_ema", "ema.enable"},
    {"ema.max_value", "ema.decay"},
    {"ema.min_value", "ema.min_decay"},
    {"dataset.image_transforms.enable", "augment.enable", nullptr, nullptr, true},
    {"dataset.image_transforms.max_num_transforms", "augment.max_num_transforms"},
    {"dataset.image_transforms.random_order", "augment.random_order"},
    {"rename_map", "policy.rename_map"},
    {"dataset.streaming", nullptr, only_false, nullptr, true},
    {"use_policy_training_preset", nullptr, only_true, nullptr, true},
    {"tolerance_s", "dataset.tolerance_s"},
    {"dataset_root", "dataset.root"},
    {"task.dataset.zarr_path", "dataset.root"},
    {"task.name", nullptr, nullptr, kTask},
    {"setting", nullptr},
    {"expert_data_num", nullptr},
    {"horizon", "policy.horizon"},
    {"n_obs_steps", "policy.n_obs_steps"},
    {"n_action_steps", "policy.n_action_steps"},
    {"policy.noise_scheduler.num_train_timesteps", "policy.num_train_timesteps"},
    {"policy.noise_scheduler.beta_start", "policy.beta_start"},
    {"policy.noise_scheduler.beta_end", "policy.beta_end"},
    {"policy.noise_scheduler.beta_schedule", "policy.beta_schedule"},
    {"policy.noise_scheduler.clip_sample", "policy.clip_sample"},
    {"policy.noise_scheduler.prediction_type", "policy.prediction_type"},
    {"policy_path", "policy.path"},
    {"resume", "resume", resume},
    {"resume_checkpoint", "resume", resume},
    {"resume_from_checkpoint", "resume", resume},
    {"checkpoint_path", "resume"},
    {"training.resume", "resume", resume_if_possible},
    {"training.checkpoint_dir", "output_dir"},
    {"training.save_dir", "output_dir"},
    {"save_dir", "output_dir"},
    {"multi_run.run_dir", "output_dir"},
    {"job_name", "experiment_name"},
    {"training.experiment_name", "experiment_name"},
    {"training.device", "device"},
    {"policy.device", "device"},
    {"nproc_per_node", "world_size"},
    {"num_processes", "world_size"},
    {"port", "master_port"},
    {"main_process_port", "master_port"},
    {"main_process_ip", "master_addr"},
    {"local_rank", nullptr},  // what torch.distributed.launch passes; LOCAL_RANK says the same
    {"use_ddp", nullptr, nullptr, kDdp, true},
    {"training.use_ddp", nullptr, nullptr, kDdp},
    {"multi_gpu", nullptr, nullptr, kDdp, true},
    {"pin_memory", nullptr, nullptr, kPython, true},
    {"data.pin_memory", nullptr, nullptr, kPython},
    {"dataloader.pin_memory", nullptr, nullptr, kPython},
    {"persistent_workers", nullptr, nullptr, kPython, true},
    {"data.persistent_workers", nullptr, nullptr, kPython},
    {"dataloader.persistent_workers", nullptr, nullptr, kPython},
    {"prefetch_factor", nullptr, nullptr, kPython},
    {"data.prefetch_factor", nullptr, nullptr, kPython},
    {"dataset.video_backend", nullptr, nullptr, kPython},
    {"use_wandb", "logging.wandb.enable", nullptr, nullptr, true},
    {"enable_wandb", "logging.wandb.enable", nullptr, nullptr, true},
    {"training.use_wandb", "logging.wandb.enable"},
    {"wandb.enable", "logging.wandb.enable", nullptr, nullptr, true},
    {"report_to", "logging.wandb.enable", reported_to_wandb},
    {"wandb_project", "logging.wandb.project"},
    {"wandb_project_name", "logging.wandb.project"},
    {"wandb.project", "logging.wandb.project"},
    {"logging.project", "logging.wandb.project"},
    {"wandb_entity", "logging.wandb.entity"},
    {"wandb.entity", "logging.wandb.entity"},
    {"wandb.run_id", "logging.wandb.id"},
    {"wandb_run_id", "logging.wandb.id"},
    {"wandb.mode", "logging.wandb.mode", wandb_mode},
    {"logging.mode", "logging.wandb.mode", wandb_mode},
    {"wandb.notes", "logging.wandb.notes"},
    {"wandb.disable_artifact", nullptr, nullptr, kArtifacts, true},
    {"policy.push_to_hub", nullptr, nullptr, kHub, true},
    {"policy.repo_id", nullptr, nullptr, kHub},
    {"eval_freq", nullptr, nullptr, kSimulator},
    {"env_eval_freq", nullptr, nullptr, kSimulator},
};

constexpr EnvironmentAlias kVariables[] = {
    {"BATCH_SIZE", "batch_size"},
    {"NUM_WORKERS", "num_workers"},
    {"STEPS", "steps"},
    {"OUTPUT_DIR", "output_dir"},
    {"ACCELERATE_MIXED_PRECISION", "mixed_precision"},
    {"MIXED_PRECISION", "mixed_precision"},
    {"ENABLE_WANDB", "enable_wandb"},
    {"WANDB_RUN_ID", "wandb_run_id"},
};

// use_mixed_precision: true, with or without a mixed_precision_dtype (else bfloat16), is one training.precision.
void join_mixed_precision(std::vector<Setting>& settings) {
  std::optional<Setting> joined;
  std::string dtype = "bf16-mixed";
  for (const Setting& setting : settings) {
    if (setting.name == kMixedDtype && !setting.items.empty()) dtype = setting.text();
    if (setting.name == kUseMixed && cxxrun::parse_bool(setting)) joined = setting;
  }
  std::erase_if(settings, [](const Setting& setting) { return setting.name == kUseMixed || setting.name == kMixedDtype; });
  if (!joined) return;
  joined->name = "training.precision";
  joined->kind = Setting::Kind::kScalar;
  joined->items = {dtype};
  settings.push_back(std::move(*joined));
}

}  // namespace

std::span<const ConfigAlias> config_aliases() { return kAliases; }
std::span<const EnvironmentAlias> environment_aliases() { return kVariables; }

std::vector<Setting> resolve_aliases(const std::vector<Setting>& settings, std::vector<std::string>& notes) {
  std::vector<Setting> resolved;
  for (Setting setting : settings) {
    setting.name = cxxrun::canonical_name(setting.name);
    const auto* row =
        std::ranges::find_if(kAliases, [&](const ConfigAlias& alias) { return setting.name == alias.alias; });
    if (row != std::end(kAliases)) {
      if (row->translate && setting.kind != Setting::Kind::kNull) {
        if (setting.kind == Setting::Kind::kList)
          throw UsageError("{}: {} takes one value, not a list", setting.source, setting.name);
        setting.items = {row->translate(setting)};
        setting.kind = Setting::Kind::kScalar;
      }
      if (row->note) {
        const std::string note = fmt::format("{}: {} {}", setting.source, setting.name, row->note);
        if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
      }
      if (!row->canonical) continue;
      if (setting.name != row->canonical) setting.source += fmt::format(", {}", row->alias);
      setting.name = row->canonical;
    }
    resolved.push_back(std::move(setting));
  }
  join_mixed_precision(resolved);
  // "--resume=true --checkpoint_path=DIR" is one request, in either order.
  const auto is_resume = [](const Setting& setting) { return setting.name == "resume" && !setting.items.empty(); };
  const auto is_word = [](const Setting& setting) { return is_one_of(setting.text(), {"true", "auto"}); };
  if (std::ranges::any_of(resolved,
                          [&](const Setting& s) { return is_resume(s) && !is_word(s) && !s.text().empty(); })) {
    std::erase_if(resolved, [&](const Setting& s) { return is_resume(s) && is_word(s); });
  }
  return resolved;
}

}  // namespace vla
