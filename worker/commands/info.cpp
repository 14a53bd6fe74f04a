#include <filesystem>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/training_state.hpp"
#include "worker/commands/command.hpp"
#include "worker/data/dataset.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;

const char* name_of(data::FeatureType type) {
  constexpr const char* kNames[] = {"visual", "state", "environment", "action", "other"};
  return kNames[static_cast<size_t>(type)];
}

void print_dataset(const std::string& root) {
  const auto dataset = data::open_dataset({.root = root, .episodes = {}});
  fmt::print("{}\n  {} episodes, {} frames at {} frames/s\n", dataset->description(), dataset->episodes().size(), dataset->size(), dataset->fps());
  fmt::print("features:\n");
  for (const data::Feature& feature : dataset->features()) {
    fmt::print("  {:<32} {:<12} [{}]\n", feature.key, name_of(feature.type), fmt::join(feature.shape, ", "));
  }
  fmt::print("tasks:\n");
  for (const std::string& task : dataset->tasks()) fmt::print("  {}\n", task);
}

void print_checkpoint(const fs::path& pretrained_model) {
  const PretrainedConfig config = read_pretrained_config(pretrained_model);
  const TensorMap weights = load_safetensors(pretrained_model / "model.safetensors");
  int64_t elements = 0;
  for (const auto& [name, tensor] : weights) elements += tensor.numel();
  fmt::print("{}\n  policy {}, {} tensors with {} numbers\n", pretrained_model.string(), config.type, weights.size(), elements);
  for (const auto& [kind, features] : {std::pair{"input", config.features.inputs}, std::pair{"output", config.features.outputs}}) {
    for (const PolicyFeature& feature : features) {
      fmt::print("  {:<6} {:<32} {:<12} [{}]\n", kind, feature.key, name_of(feature.type), fmt::join(feature.shape, ", "));
    }
  }
  const fs::path checkpoint = pretrained_model.parent_path();
  if (!fs::exists(checkpoint / "training_state")) return;
  const TrainingState state = read_training_state(checkpoint);
  fmt::print("  trained for {} steps of {} samples on {} ranks, seed {}; continue with --resume={}\n", state.step, state.global_batch,
             state.world_size, state.seed, checkpoint.string());
}

}  // namespace

int info_command(Arguments arguments) {
  if (arguments.size() != 1 || arguments.front() == "--help" || arguments.front() == "-h") {
    fmt::print("vla_worker info DATASET|CHECKPOINT\n\nSays what a dataset's folder or a checkpoint's folder holds.\n");
    if (arguments.size() == 1) return 0;
    throw cxxrun::UsageError("info takes one argument, the folder of a dataset or of a checkpoint; got {}", arguments.size());
  }
  const std::string& path = arguments.front();
  const bool is_checkpoint = fs::exists(fs::path(path) / "config.json") || fs::exists(fs::path(path) / "pretrained_model") ||
                             fs::exists(fs::path(path) / "last");
  if (is_checkpoint) {
    print_checkpoint(find_pretrained_model(path));
  } else {
    print_dataset(path);
  }
  return 0;
}

}  // namespace vla
