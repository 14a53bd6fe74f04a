#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include <torch/torch.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_parse.hpp"
#include "common/option_text.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/safetensors.hpp"
#include "worker/commands/command.hpp"
#include "worker/data/json_file.hpp"
#include "worker/dataset_parts.hpp"
#include "worker/evaluation.hpp"
#include "worker/inference/policy_runner.hpp"
#include "worker/training_data.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;

struct EvalOptions {
  std::string checkpoint;
  DatasetOptions dataset;
  bool ema = false;
  std::string json;
  std::string device = "auto";
  int64_t batch_size = 8;
  std::string actions_file;
  int64_t actions_frames = 8;

  void describe(cxxrun::OptionTable& table) {
    table.add("checkpoint", checkpoint, "folder of the checkpoint, as of train's; also the first argument").path();
    table.section("dataset", dataset);
    table.add("ema", ema, "evaluate the averaged weights");
    table.add("json", json, "store the numbers in this file; - prints them, as the last line of the output").path().one_of({"-"});
    table.add("device", device, "auto | cpu | cuda | cuda:N");
    table.add("batch_size", batch_size, "frames of one forward pass").at_least(1).at_most(1 << 16).in("frames");
    table.add("actions_file", actions_file, "store observations and predicted actions of the first frames in this safetensors file").path();
    table.add("actions_frames", actions_frames, "how many frames go into actions_file").at_least(1).in("frames");
  }
};

constexpr char kEvalUsage[] =
    "vla_worker eval --checkpoint DIR [--dataset DIR] [--OPTION=VALUE...]\n\n"
    "How far the policy's action chunks are from the demonstrated ones, in every dimension, on the episodes that its training held\n"
    "out, or on all of a dataset that is named (--dataset is short for --dataset.root).\n\n"
    "  vla_worker eval --checkpoint outputs/20250115_123456/checkpoints/last\n"
    "  vla_worker eval outputs/20250115_123456/checkpoints/last --dataset ~/data/other --dataset.episodes '[0, 1]' --json errors.json\n\n";

std::vector<cxxrun::Setting> read_arguments(Arguments arguments) {
  std::vector<cxxrun::Setting> settings;
  if (!arguments.empty() && !arguments.front().starts_with("--")) {
    settings.push_back({.name = "checkpoint", .items = {arguments.front()}, .source = "command line"});
    arguments = arguments.subspan(1);
  }
  for (cxxrun::Setting& setting : cxxrun::parse_command_line(arguments, [](std::string_view name) { return name == "ema"; })) {
    if (setting.name == "dataset") setting.name = "dataset.root";
    settings.push_back(std::move(setting));
  }
  return settings;
}

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

// What the dataset calls the dimensions of an action, where it is one of LeRobot's that says so, else their numbers.
std::vector<std::string> dimension_names(const DatasetOptions& options, size_t count) {
  std::vector<std::string> names;
  const auto parts = dataset_parts(options);
  const fs::path info = fs::path(parts.empty() ? "" : parts.front().path) / "meta" / "info.json";
  if (fs::exists(info)) {
    const auto json = data::read_json(info.string());
    auto listed = json.value(nlohmann::json::json_pointer("/features/action/names"), nlohmann::ordered_json());
    if (listed.is_object() && listed.size() == 1) listed = *listed.begin();  // {"motors": [...]}
    for (const auto& name : listed.is_array() ? listed : nlohmann::ordered_json::array()) {
      if (name.is_string()) names.push_back(name.get<std::string>());
    }
  }
  if (names.size() == count) return names;
  names.clear();
  for (size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

void print_table(const Evaluation& result, const std::vector<std::string>& names) {
  size_t width = 9;
  for (const std::string& name : names) width = std::max(width, name.size());
  cxxrun::log_info("{:<{}}  {:>12}  {:>12}  {:>17}  {:>17}", "dimension", width, "error", "RMSE", "mean action error", "mean action RMSE");
  for (size_t i = 0; i < names.size(); ++i) {
    const ActionErrors& of = result.dimensions[i];
    cxxrun::log_info("{:<{}}  {:>12.6f}  {:>12.6f}  {:>17.6f}  {:>17.6f}", names[i], width, of.policy, of.policy_rmse, of.mean_action,
                     of.mean_action_rmse);
  }
}

nlohmann::ordered_json as_json(const ActionErrors& errors) {
  return {{"error", errors.policy},
          {"rmse", errors.policy_rmse},
          {"mean_action_error", errors.mean_action},
          {"mean_action_rmse", errors.mean_action_rmse}};
}

void write_json(const std::string& place, const LoadedPolicy& loaded, const std::string& dataset, const Evaluation& result,
                const std::vector<std::string>& names) {
  nlohmann::ordered_json json = {{"checkpoint", loaded.folder.string()}, {"policy", loaded.type}, {"dataset", dataset},
                                 {"frames", result.frames}, {"loss", result.loss}};
  json.update(as_json(result.all));
  json["dimensions"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < names.size(); ++i) {
    nlohmann::ordered_json dimension = {{"name", names[i]}};
    dimension.update(as_json(result.dimensions[i]));
    json["dimensions"].push_back(std::move(dimension));
  }
  if (place == "-") {
    fmt::print("{}\n", json.dump());
    std::fflush(stdout);
  } else {
    cxxrun::write_file_atomically(place, json.dump(2) + "\n");
  }
}

// uint8 [B, length]: each row's text in UTF-8, zeros at the end.
at::Tensor texts_of(const std::vector<std::string>& tasks, const at::Tensor& task_index) {
  const at::Tensor index = task_index.to(at::kCPU);
  size_t longest = 1;
  for (const std::string& task : tasks) longest = std::max(longest, task.size());
  at::Tensor texts = torch::zeros({index.numel(), static_cast<int64_t>(longest)}, torch::kByte);
  for (int64_t row = 0; row < index.numel(); ++row) {
    const std::string& task = tasks.at(static_cast<size_t>(index[row].item<int64_t>()));
    std::memcpy(texts[row].data_ptr(), task.data(), task.size());
  }
  return texts;
}

// Observations as the dataset gives them (images uint8 [B, H, W, 3]) and actions in its units: what another program needs to check ours.
void store_actions(const std::string& path, const data::Dataset& dataset, const LoadedPolicy& loaded, int64_t frames, at::Device device) {
  Policy& policy = *loaded.policy;
  frames = std::min(frames, dataset.size());
  const data::SampleRequest request = policy.options().sample_request(policy.features());
  const data::Sampler in_order({.dataset_size = dataset.size(), .global_batch = frames, .shuffle = false});
  data::Loader loader(std::shared_ptr<const data::Dataset>(&dataset, [](auto*) {}), request,
                      [&](int64_t k) { return k == 0 ? std::optional(in_order.micro_batch(0, 0, 1, 0, 1)) : std::nullopt; },
                      {.rows = frames, .num_threads = 1, .num_slots = 2, .allocate = {}});
  Batch batch = make_batch(*loader.next(), loader.layout(), device, at::kFloat, /*keep_bytes=*/true);
  TensorMap stored;
  for (const PolicyFeature& input : policy.features().inputs) {
    if (!batch.has(input.key)) continue;  // the policy does not read it
    const auto& value = batch.at(input.key);
    stored[input.key] = input.type == data::FeatureType::kVisual ? value.movedim(-3, -1) : value;
  }
  if (policy.options().text_processor()) stored["task"] = texts_of(dataset.tasks(), batch.at("task_index"));
  loaded.normalizer.normalize(batch, input_dtype(policy), policy.takes_image_bytes());
  stored["action"] = loaded.normalizer.unnormalize(policy.predict_chunk(batch).to(at::kFloat));
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
  const auto settings = read_arguments(arguments);
  static const std::set<std::string> kDatasets = {"dataset.root", "dataset.repo_id", "dataset.datasets"};
  const auto is_dataset = [](const cxxrun::Setting& setting) { return kDatasets.contains(setting.name); };
  const bool names_dataset = std::ranges::any_of(settings, is_dataset);
  for (const cxxrun::Setting& setting : settings) {
    if (setting.name == "checkpoint") cxxrun::apply_setting(table, setting);
  }
  if (options.checkpoint.empty()) throw cxxrun::UsageError("eval needs --checkpoint DIR");
  if (!names_dataset) apply_training_dataset(fs::canonical(find_pretrained_model(options.checkpoint)), table);
  for (const cxxrun::Setting& setting : settings) cxxrun::apply_setting(table, setting);

  const auto env = cxxrun::WorkerEnv::read();
  const cxxrun::World world(env, cxxrun::choose_device(options.device, env));
  const LoadedPolicy loaded = load_policy(options.checkpoint, options.ema, world.device());
  const TrainingData data = open_training_data(options.dataset);
  const auto dataset = data.validation ? data.validation : data.training;
  loaded.policy->set_tasks(dataset->tasks());
  cxxrun::DistributedDataParallel<Policy> ddp(loaded.policy, world.group());

  const data::Sampler in_order({.dataset_size = dataset->size(), .global_batch = options.batch_size, .shuffle = false});
  data::Loader loader(dataset, loaded.policy->options().sample_request(loaded.policy->features()),
                      [&](int64_t step) -> std::optional<data::MicroBatch> {
                        if (step >= in_order.steps_per_epoch()) return std::nullopt;
                        return in_order.micro_batch(step, 0, 1, world.rank(), world.size());
                      },
                      {.rows = data::micro_batch_rows(options.batch_size, 1, world.size()), .num_threads = 1, .num_slots = 4, .allocate = {}});
  const auto mean = mean_action(loaded.stats, world.device(), at::kFloat);
  const Evaluation result = evaluate(ddp, loaded.normalizer, mean, loader, in_order.steps_per_epoch(), world);
  cxxrun::log_info("{}: {} frames of {}: loss {:.6f}, open-loop action error {:.6f} (always the mean action: {:.6f})", loaded.folder.string(),
                   result.frames, dataset->description(), result.loss, result.all.policy, result.all.mean_action);
  if (!world.is_main()) return 0;
  const auto names = dimension_names(options.dataset, result.dimensions.size());
  print_table(result, names);
  if (!options.actions_file.empty()) store_actions(options.actions_file, *dataset, loaded, options.actions_frames, world.device());
  if (!options.json.empty()) write_json(options.json, loaded, dataset->description(), result, names);
  return 0;
}

}  // namespace vla
