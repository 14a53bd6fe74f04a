#include "worker/training_data.hpp"

#include <cstring>

#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/data/episode_subset.hpp"
#include "worker/data/mixture.hpp"
#include "worker/data/renamed_dataset.hpp"
#include "worker/dataset_parts.hpp"
#include "worker/run_plan.hpp"

namespace vla {
namespace {

// Task number of each episode, by its first frame.
std::vector<int64_t> tasks_of_episodes(const data::Dataset& dataset) {
  const auto layout = dataset.layout({});
  const auto reader = dataset.open_reader({});
  std::vector<std::vector<std::byte>> values;
  std::vector<std::byte*> destination;
  size_t task_field = layout.fields.size();
  for (size_t i = 0; i < layout.fields.size(); ++i) {
    values.emplace_back(layout.fields[i].bytes_per_row);
    destination.push_back(values.back().data());
    if (layout.fields[i].key == "task_index") task_field = i;
  }
  std::vector<int64_t> tasks;
  for (const data::Episode& episode : dataset.episodes()) {
    reader->read(episode.begin, destination);
    tasks.emplace_back();
    std::memcpy(&tasks.back(), destination[task_field], sizeof tasks.back());
  }
  return tasks;
}

// One part of the data: what is trained on and what is held out of it.
struct SplitDataset {
  std::shared_ptr<const data::Dataset> training, validation;
};

SplitDataset open_split(const data::DatasetSpec& spec, const DatasetOptions& options) {
  SplitDataset opened{data::open_dataset(spec), nullptr};
  if (options.val_episodes == 0 && options.eval_split == 0) return opened;
  const auto split = split_episodes(tasks_of_episodes(*opened.training), options.val_episodes, options.eval_split);
  if (split.validation.empty()) return opened;
  opened.validation = data::episode_subset(opened.training, split.validation);
  opened.training = data::episode_subset(opened.training, split.training);
  return opened;
}

}  // namespace

TrainingData open_training_data(const DatasetOptions& options, const std::vector<std::string>& rename_map, bool skip_broken,
                                int64_t drop_n_last_frames) {
  const std::vector<DatasetPart> parts = dataset_parts(options);
  if (parts.empty()) throw cxxrun::UsageError("no dataset: set dataset.root to a dataset's folder (--dataset.root DIR)");

  TrainingData data;
  std::vector<data::MixtureEntry> training, validation;
  for (const DatasetPart& part : parts) {
    SplitDataset opened = open_split({.root = part.path, .episodes = part.episodes, .tolerance_s = options.tolerance_s, .skip_broken = skip_broken}, options);
    training.push_back({data::drop_last_frames(std::move(opened.training), drop_n_last_frames), part.weight.value_or(0)});
    if (opened.validation) validation.push_back({std::move(opened.validation), 0});
  }
  if (training.size() > 1) data.parts = data::sampler_parts(training);
  const auto joined = [&](std::vector<data::MixtureEntry> entries) {
    auto dataset = entries.size() == 1 ? entries.front().dataset : data::mix_datasets(std::move(entries));
    return data::rename_features(std::move(dataset), rename_map);
  };
  data.training = joined(std::move(training));
  if (!validation.empty()) data.validation = joined(std::move(validation));
  data.features = policy_features(*data.training);
  return data;
}

PolicyFeatures policy_features(const data::Dataset& dataset) {
  PolicyFeatures features;
  for (const data::Feature& feature : dataset.features()) {
    PolicyFeature seen{feature.key, feature.type, feature.shape};
    if (feature.type == data::FeatureType::kVisual) seen.shape = {feature.shape[2], feature.shape[0], feature.shape[1]};
    if (feature.type == data::FeatureType::kAction) {
      features.outputs.push_back(std::move(seen));
    } else if (feature.type != data::FeatureType::kOther) {
      features.inputs.push_back(std::move(seen));
    }
  }
  return features;
}

at::Tensor mean_action(const data::DatasetStats& stats, at::Device device, at::ScalarType dtype) {
  const auto action = stats.find("action");
  if (action == stats.end() || !action->second.contains("mean")) {
    throw cxxrun::DataError("the dataset's statistics have no mean of feature 'action'");
  }
  return torch::tensor(action->second.at("mean").values, torch::kDouble).to(device, dtype);
}

std::shared_ptr<std::byte> allocate_slot(size_t bytes, bool page_locked) {
  auto memory = torch::empty({static_cast<int64_t>(bytes)}, torch::dtype(torch::kByte).pinned_memory(page_locked));
  auto* data = reinterpret_cast<std::byte*>(memory.data_ptr<uint8_t>());
  return {data, [memory](std::byte*) {}};
}

}  // namespace vla
