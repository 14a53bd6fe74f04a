#include <filesystem>

#include <torch/torch.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_parse.hpp"
#include "common/option_text.hpp"
#include "common/registry.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/weights.hpp"
#include "worker/commands/command.hpp"
#include "worker/evaluation.hpp"
#include "worker/training_data.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;

struct EvalOptions {
  DatasetOptions dataset;
  std::string device = "auto";
  int64_t batch_size = 8;
  std::string actions_file;
  int64_t actions_frames = 8;

  void describe(cxxrun::OptionTable& table) {
    table.section("dataset", dataset);
    table.add("device", device, "auto | cpu | cuda | cuda:N");
    table.add("batch_size", batch_size, "frames of one forward pass").at_least(1).at_most(1 << 16).in("frames");
    table.add("actions_file", actions_file, "store observations and predicted actions of the first frames in this safetensors file").path();
    table.add("actions_frames", actions_frames, "how many frames go into actions_file").at_least(1).in("frames");
  }
};

constexpr char kEvalUsage[] =
    "vla_worker eval CHECKPOINT [--OPTION=VALUE...]\n\n"
    "How far the policy's action chunks are from the demonstrated ones, on the episodes that its training held out, or on all of\n"
    "dataset.root if that is given.\n\n"
    "  vla_worker eval outputs/20250115_123456/checkpoints/last\n"
    "  vla_worker eval outputs/20250115_123456/checkpoints/last --dataset.root ~/data/other --dataset.episodes '[0, 1]'\n\n";

// The dataset of the training, with its split, unless the user names another.
void apply_training_dataset(const fs::path& pretrained_model, cxxrun::OptionTable& table) {
  const fs::path config = pretrained_model.parent_path() / "training_state" / "config.yaml";
  if (!fs::exists(config)) return;
  ConfigSources sources;
  sources.add_checkpoint(config);
  for (const cxxrun::Setting& setting : sources.checkpoint) {
    if (setting.name.starts_with("dataset.")) cxxrun::apply_setting(table, setting);
  }
}

// Observations as the dataset gives them (images uint8 [B, H, W, 3]) and actions in its units: what another program needs to check ours.
void store_actions(const std::string& path, const data::Dataset& dataset, Policy& policy, const Normalizer& normalizer, int64_t frames,
                   at::Device device) {
  frames = std::min(frames, dataset.size());
  const data::SampleRequest request = policy.options().sample_request(policy.features());
  const data::Sampler in_order({.dataset_size = dataset.size(), .global_batch = frames, .shuffle = false});
  data::Loader loader(std::shared_ptr<const data::Dataset>(&dataset, [](auto*) {}), request,
                      [&](int64_t k) { return k == 0 ? std::optional(in_order.micro_batch(0, 0, 1, 0, 1)) : std::nullopt; },
                      {.rows = frames, .num_threads = 1, .num_slots = 2, .allocate = {}});
  Batch batch = make_batch(*loader.next(), loader.layout(), device);
  TensorMap stored;
  for (const PolicyFeature& input : policy.features().inputs) {
    const auto& value = batch.at(input.key);
    const bool is_image = input.type == data::FeatureType::kVisual;
    stored[input.key] = is_image ? (value * 255).round().to(at::kByte).movedim(-3, -1).contiguous() : value.clone();
  }
  normalizer.normalize(batch);
  stored["action"] = normalizer.unnormalize(policy.predict_chunk(batch));
  save_safetensors(path, stored);
  cxxrun::log_info("observations and actions of {} frames: {}", frames, path);
}

}  // namespace

int eval_command(Arguments arguments) {
  EvalOptions options;
  cxxrun::OptionTable table;
  options.describe(table);
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h") {
    fmt::print("{}{}", kEvalUsage, cxxrun::help_text(table));
    return 0;
  }
  const auto settings = cxxrun::parse_command_line(arguments.subspan(1), [](std::string_view) { return false; });
  const fs::path pretrained_model = find_pretrained_model(arguments.front());
  const bool other_dataset = std::ranges::any_of(settings, [](const auto& setting) { return setting.name == "dataset.root"; });
  if (!other_dataset) apply_training_dataset(pretrained_model, table);
  for (const cxxrun::Setting& setting : settings) cxxrun::apply_setting(table, setting);

  const auto env = cxxrun::WorkerEnv::read();
  const cxxrun::World world(env, cxxrun::choose_device(options.device, env));
  const PretrainedConfig pretrained = read_pretrained_config(pretrained_model);
  const TrainingData data = open_training_data(options.dataset);
  const auto dataset = data.validation ? data.validation : data.training;
  const auto& entry = cxxrun::find_in_registry(policy_registry(), pretrained.type, "policy type");
  const std::shared_ptr<Policy> policy = entry.make(*pretrained.options, pretrained.features);
  load_weights(pretrained_model, *policy);
  policy->to(world.device());
  policy->set_tasks(dataset->tasks());
  const auto stats = read_pretrained_stats(pretrained_model);
  const Normalizer normalizer(pretrained.options->normalization(), pretrained.features, stats, world.device());
  cxxrun::DistributedDataParallel<Policy> ddp(policy, world.group());

  const data::Sampler in_order({.dataset_size = dataset->size(), .global_batch = options.batch_size, .shuffle = false});
  data::Loader loader(dataset, pretrained.options->sample_request(pretrained.features),
                      [&](int64_t step) -> std::optional<data::MicroBatch> {
                        if (step >= in_order.steps_per_epoch()) return std::nullopt;
                        return in_order.micro_batch(step, 0, 1, world.rank(), world.size());
                      },
                      {.rows = data::micro_batch_rows(options.batch_size, 1, world.size()), .num_threads = 1, .num_slots = 4, .allocate = {}});
  const auto mean = mean_action(stats, world.device(), at::kFloat);
  const Evaluation result = evaluate(ddp, normalizer, mean, loader, in_order.steps_per_epoch(), world);
  cxxrun::log_info("{}: {} frames of {}: loss {:.6f}, open-loop action error {:.6f} (always the mean action: {:.6f})", pretrained_model.string(),
                   result.frames, dataset->description(), result.loss, result.action_error, result.mean_action_error);
  if (!options.actions_file.empty() && world.is_main()) {
    store_actions(options.actions_file, *dataset, *policy, normalizer, options.actions_frames, world.device());
  }
  return 0;
}

}  // namespace vla
