#include "worker/inference/policy_runner.hpp"

#include <algorithm>

#include <fmt/ranges.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/weights.hpp"
#include "worker/evaluation.hpp"
#include "worker/image_ops.hpp"
#include "worker/optim/precision.hpp"

namespace vla {
namespace {

using cxxrun::DataError;
namespace fs = std::filesystem;

// A policy keeps the tokens of every text that it was told: a client that invents new ones all the time must not fill the memory.
constexpr size_t kMostTasks = 256;

fs::path pretrained_folder(const fs::path& path, bool ema) {
  const fs::path folder = fs::canonical(find_pretrained_model(path));
  if (!ema || folder.filename() == kEmaModelFolder) return folder;
  const fs::path averaged = folder.parent_path() / kEmaModelFolder;
  if (fs::exists(averaged / "config.json")) return averaged;
  throw cxxrun::UsageError("{} has no averaged weights ({}): the training ran without ema.enable", folder.parent_path().string(), kEmaModelFolder);
}

int64_t executed_steps(const PolicyOptions& options, int64_t chunk) {
  cxxrun::OptionTable table;
  const_cast<PolicyOptions&>(options).describe(table);  // takes addresses to write to; here they are only read
  const cxxrun::OptionRow* row = table.find("n_action_steps");
  const auto* value = row ? std::get_if<int64_t*>(&row->value) : nullptr;
  return value ? std::min(**value, chunk) : chunk;
}

}  // namespace

LoadedPolicy load_policy(const fs::path& path, bool ema, at::Device device) {
  const fs::path folder = pretrained_folder(path, ema);
  apply_tf32({});  // LibTorch leaves it to cuDNN, so that convolutions on a GPU would be less exact than on the CPU
  const PretrainedConfig config = read_pretrained_config(folder);
  const auto& entry = cxxrun::find_in_registry(policy_registry(), config.type, "policy type");
  std::shared_ptr<Policy> policy = entry.make(*config.options, config.features);
  load_weights(folder, *policy);
  policy->to(device);
  policy->train(false);
  data::DatasetStats stats = read_pretrained_stats(folder);
  Normalizer normalizer(config.options->normalization(), config.features, stats, device);
  return {folder, config.type, std::move(policy), std::move(stats), std::move(normalizer)};
}

PolicyRunner::PolicyRunner(LoadedPolicy loaded, at::Device device, const Options& options)
    : loaded_(std::move(loaded)), device_(device), options_(options), dtype_(input_dtype(*loaded_.policy)) {
  const PolicyOptions& policy = loaded_.policy->options();
  const PolicyFeatures& features = loaded_.policy->features();
  int64_t chunk = 0;
  for (const data::FieldRequest& field : policy.sample_request(features)) {
    const auto feature = std::ranges::find(features.inputs, field.key, &PolicyFeature::key);
    if (feature == features.inputs.end()) {
      chunk = std::max<int64_t>(chunk, std::ranges::count_if(field.deltas, [](int64_t delta) { return delta >= 0; }));
      continue;
    }
    for (const int64_t delta : field.deltas) {
      TORCH_CHECK(delta <= 0, "policy ", loaded_.type, " wants the future of ", field.key);
      history_ = std::max(history_, 1 - delta);
    }
    request_.push_back(field);
    inputs_.push_back(&*feature);
  }
  needs_task_ = policy.text_processor().has_value();
  action_steps_ = executed_steps(policy, chunk);
}

void PolicyRunner::require_input(const std::string& key, at::ScalarType dtype, at::IntArrayRef shape) const {
  const auto place = std::ranges::find(inputs_, key, [](const PolicyFeature* feature) { return feature->key; });
  if (place == inputs_.end()) {
    std::vector<std::string> known;
    for (const PolicyFeature* feature : inputs_) known.push_back(feature->key);
    throw DataError("the policy has no input '{}'; it has {}", key, fmt::join(known, ", "));
  }
  const PolicyFeature& feature = **place;
  const bool is_image = feature.type == data::FeatureType::kVisual;
  const std::vector<int64_t> expected =
      is_image ? std::vector<int64_t>{feature.shape.at(1), feature.shape.at(2), feature.shape.at(0)} : feature.shape;
  const at::ScalarType expected_dtype = is_image ? at::kByte : at::kFloat;
  const bool fits = is_image && options_.image_size != "exact" ? shape.size() == 3 && shape[2] == expected[2] : shape == at::IntArrayRef(expected);
  if (fits && dtype == expected_dtype) return;
  throw DataError("'{}' is {} [{}] instead of {} [{}]{}", key, at::toString(dtype), fmt::join(shape, ", "), at::toString(expected_dtype),
                  fmt::join(expected, ", "),
                  is_image && shape.size() == 3 ? ": send images of that size, or choose another image_size (resize, any)" : "");
}

void PolicyRunner::observe(Session& session, Observation observation) const {
  for (const PolicyFeature* feature : inputs_) {
    if (!observation.values.contains(feature->key)) throw DataError("'{}' is missing: the policy needs it", feature->key);
  }
  for (const auto& [key, value] : observation.values) {
    require_input(key, value.scalar_type(), value.sizes());
    if (value.is_floating_point() && !value.isfinite().all().item<bool>()) throw DataError("'{}' has a value that is not finite", key);
  }
  if (needs_task_ && !observation.task) throw DataError("'task' is missing: the policy reads it");
  session.history_.push_back(std::move(observation));
  if (std::ssize(session.history_) > history_) session.history_.pop_front();
}

// float32 [3, height, width] in [0, 1], or the vector, on the device.
at::Tensor PolicyRunner::input(const PolicyFeature& feature, const at::Tensor& value) const {
  at::Tensor tensor = value.to(device_, /*dtype=*/value.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  if (feature.type != data::FeatureType::kVisual) return tensor;
  tensor = images_to_float(tensor.movedim(-1, -3));
  const int64_t height = feature.shape[1], width = feature.shape[2];
  if (options_.image_size != "resize" || (tensor.size(-2) == height && tensor.size(-1) == width)) return tensor;
  return resize_bilinear(tensor.unsqueeze(0), height, width, /*antialias=*/true).squeeze(0).clamp_(0, 1);
}

int64_t PolicyRunner::task_index(const std::string& task) {
  auto place = std::ranges::find(tasks_, task);
  if (place == tasks_.end()) {
    if (tasks_.size() == kMostTasks) tasks_.clear();
    tasks_.push_back(task);
    loaded_.policy->set_tasks(tasks_);
    place = tasks_.end() - 1;
  }
  return place - tasks_.begin();
}

at::Tensor PolicyRunner::predict(Session& session) {
  TORCH_CHECK(!session.history_.empty(), "a prediction without an observation");
  const torch::NoGradGuard no_grad;
  // As LeRobot's queues do, and as datasets at an episode's begin: steps before the first observation are copies of it.
  const auto at_delta = [&](int64_t delta) -> const Observation& {
    return session.history_[static_cast<size_t>(std::max<int64_t>(0, std::ssize(session.history_) - 1 + delta))];
  };
  const auto longs = torch::dtype(torch::kLong).device(device_);
  Batch batch;
  batch.weight = torch::ones({1}, torch::dtype(torch::kFloat).device(device_));
  batch.position = torch::full({1}, session.predictions_, longs);
  batch.fields["task_index"] = torch::full({1}, task_index(session.history_.back().task.value_or("")), longs);
  for (size_t i = 0; i < request_.size(); ++i) {
    const auto value = [&](int64_t delta) { return input(*inputs_[i], at_delta(delta).values.at(request_[i].key)); };
    std::vector<at::Tensor> steps;
    for (const int64_t delta : request_[i].deltas) steps.push_back(value(delta));
    batch.fields[request_[i].key] = (steps.empty() ? value(0) : at::stack(steps)).unsqueeze(0);
  }
  loaded_.normalizer.normalize(batch, dtype_);
  const at::Tensor chunk = loaded_.policy->sample_chunk(batch, StepRandom(options_.seed, 0, batch.position));
  const at::Tensor actions = loaded_.normalizer.unnormalize(chunk.to(at::kFloat)).squeeze(0).to(at::kCPU).contiguous();
  if (!actions.isfinite().all().item<bool>()) throw cxxrun::Error("the policy's actions are not finite");
  ++session.predictions_;
  return actions;
}

}  // namespace vla
