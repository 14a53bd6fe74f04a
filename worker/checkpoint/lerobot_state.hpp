// The training_state/ that LeRobot 0.6.1's lerobot-train writes: training_step.json, optimizer_state.safetensors and
// optimizer_param_groups.json, so that its runs can be continued here. Its random number generators are Python's and are not read.
// Files are untrusted; what does not fit throws Error naming file and key.
#pragma once

#include <filesystem>
#include <vector>

#include "common/option_parse.hpp"
#include "worker/checkpoint/training_state.hpp"

namespace vla {

bool is_lerobot_state(const std::filesystem::path& checkpoint);

// Step, world size, and, from train_config.json, seed and length. Sample positions follow from the step.
TrainingState read_lerobot_state(const std::filesystem::path& checkpoint);

// "<parameter>.exp_avg" etc. LeRobot numbers the parameters in the order in which its optimizer got them: either the trainable
// ones by group or all of the policy's. A parameter that was never updated has no entry there and gets zeros.
TensorMap read_lerobot_optimizer(const std::filesystem::path& checkpoint, Policy& policy);

// What its train_config.json says about dataset, batch, length and optimizer, in LeRobot's spelling ("steps", "optimizer.lr").
std::vector<cxxrun::Setting> read_lerobot_settings(const std::filesystem::path& checkpoint);

}  // namespace vla
