// Small checkpoints for tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "tests/support/temp_dir.hpp"
#include "worker/checkpoint/checkpoint.hpp"

namespace vla {

using cxxrun::TempDir;

inline TrainingState state_of(int64_t step) { return {.step = step, .consumed_samples = 8 * step, .global_batch = 8}; }

// A checkpoint whose contents say which step it is of.
inline CheckpointFiles files_of(int64_t step) {
  CheckpointFiles files;
  files.texts["pretrained_model/config.json"] = "{}";
  files.tensors["pretrained_model/model.safetensors"]["w"] = torch::full({3}, step, torch::kFloat);
  files.tensors["pretrained_model_ema/model.safetensors"]["w"] = torch::full({3}, step, torch::kFloat);
  add_optimizer_state(files, {{"w.exp_avg", torch::full({3}, -step, torch::kFloat)}});
  add_tensor_state(files, "ema", {{"w", torch::full({3}, step, torch::kDouble)}});
  return files;
}

inline bool save(CheckpointWriter& writer, int64_t step, std::optional<double> validation_loss = {}) {
  writer.take(files_of(step));
  writer.save(state_of(step), validation_loss);
  return writer.wait();
}

// The step of a checkpoint all of whose files agree on it.
inline int64_t step_of(const std::filesystem::path& checkpoint) {
  const TrainingState state = read_training_state(checkpoint);
  EXPECT_EQ(checkpoint_problem(checkpoint), std::nullopt);
  for (const char* name : {"pretrained_model/model", "pretrained_model_ema/model", "training_state/ema"}) {
    EXPECT_EQ(load_safetensors(checkpoint / (std::string(name) + ".safetensors")).at("w")[0].item<int64_t>(), state.step) << name;
  }
  EXPECT_EQ(load_safetensors(checkpoint / "training_state/optimizer.safetensors").at("w.exp_avg")[0].item<int64_t>(), -state.step);
  return state.step;
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string error_from(const std::function<void()>& action) {
  try {
    action();
  } catch (const cxxrun::Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace vla
