// What rank 0 prints before the first step: one table of what is trained, on what, with which batch, length and rate, and the
// warnings. Pure functions of their arguments, no Torch. Scripts look for the "key=value" parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/run_plan.hpp"

namespace vla {

struct StartInfo {
  std::string config_path, backend, master_addr;
  int64_t master_port = 0, world_size = 1;
  std::vector<std::string> devices;  // by rank: "cuda:0 NVIDIA H100 80GB HBM3", "cpu"
  std::string dataset;  // its description
  int64_t episodes = 0, broken_episodes = 0, training_frames = 0, validation_frames = 0;
  int64_t steps_per_epoch = 0, first_step = 0, total_steps = 0;
  int64_t parameters = 0, trainable = 0;
  std::string precision;
  BatchPlan batch = {};
  LrPlan lr = {};
  WorkersPlan workers = {};
};

std::vector<std::string> start_lines(const TrainConfig& config, const StartInfo& info);

}  // namespace vla
