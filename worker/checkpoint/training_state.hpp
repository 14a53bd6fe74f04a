// What a run continues from beside the policy's weights: the folder training_state/ of a checkpoint. Ours holds training_state.json,
// optimizer.safetensors and whatever else has tensors, all by name; LeRobot 0.6.1's own files are read too, never written. Files are
// untrusted; what does not fit throws Error naming file and key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "worker/checkpoint/checkpoint_files.hpp"
#include "worker/policies/policy.hpp"

namespace vla {

// The checkpoint with the lowest validation loss so far.
struct BestCheckpoint {
  int64_t step = 0;
  double loss = 0;
};

struct TrainingState {
  int64_t step = 0;  // completed
  int64_t consumed_samples = 0;
  int64_t seed = 0;
  int64_t global_batch = 0;  // samples per step; 0 = unknown (old LeRobot checkpoints)
  int64_t world_size = 1;  // of the run that saved it; any other may continue
  int64_t schedule_steps = 0;  // length of the learning-rate schedule; 0 = unknown
  std::string config_hash = {};  // fingerprint() of the resolved configuration
  std::string data_fingerprint = {};  // of the training data; "" = unknown
  std::optional<BestCheckpoint> best = {};  // filled in by CheckpointWriter
  // Small state of others by dotted name: {"scheduler.best", 0.25}, {"ema.updates", 100}.
  std::map<std::string, double> numbers = {};
  bool by_lerobot = false;  // LeRobot wrote it: no configuration of ours is there. Not stored.
};

void add_training_state(CheckpointFiles& files, const TrainingState& state);
void add_optimizer_state(CheckpointFiles& files, const TensorMap& state);
// Other tensors: training_state/<name>.safetensors ("ema", "scaler").
void add_tensor_state(CheckpointFiles& files, const std::string& name, const TensorMap& state);

TrainingState read_training_state(const std::filesystem::path& checkpoint);
// As Optimizer::state() names it. LeRobot's numbers its tensors by the order of `policy`'s parameters.
TensorMap read_optimizer_state(const std::filesystem::path& checkpoint, Policy& policy);
// nullopt: the run that saved the checkpoint had no such state.
std::optional<TensorMap> read_tensor_state(const std::filesystem::path& checkpoint, const std::string& name);

}  // namespace vla
