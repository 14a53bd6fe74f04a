// Saves and finds checkpoints: <output_dir>/checkpoints/000123/ with pretrained_model/ and training_state/, and the
// relative link `last`. A checkpoint becomes visible whole or not at all, a killed or failed save leaves the previous
// one as it was. Only rank 0 writes. CheckpointWriter copies the tensors and writes behind the training; used by one
// thread, owns another.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "worker/checkpoint/checkpoint_files.hpp"

namespace vla {

// What a run continues from, beside the policy and the optimizer's tensors.
struct TrainingState {
  int64_t step = 0;  // completed
  int64_t consumed_samples = 0;
  int64_t seed = 0;
  int64_t global_batch = 0;  // samples per step
  int64_t world_size = 1;  // of the run that saved it; any other may continue
  int64_t schedule_steps = 0;  // length of the learning-rate schedule
  std::string config_hash;  // fingerprint() of the resolved configuration
};

// 16 hexadecimal digits, the same on every machine (FNV-1a).
std::string fingerprint(std::string_view text);

void add_training_state(CheckpointFiles& files, const TrainingState& state, const TensorMap& optimizer);
TrainingState read_training_state(const std::filesystem::path& checkpoint);
TensorMap read_optimizer_state(const std::filesystem::path& checkpoint);

// The checkpoint to continue from. `resume` is "" or "false" (none), "true" (the last one in output_dir; UsageError if
// there is none), "auto" (the last one, if any) or a path to a checkpoint, to something in it, or to a folder of
// checkpoints.
std::optional<std::filesystem::path> find_checkpoint(const std::string& resume,
                                                     const std::filesystem::path& output_dir);

class CheckpointWriter {
 public:
  struct Options {
    std::filesystem::path output_dir;
    int64_t keep = 0;  // checkpoints to keep; 0 = all
    std::function<void()> after_each_operation = [] {};  // called by the writing thread; tests interrupt it there
  };

  explicit CheckpointWriter(Options options);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();  // finishes writing; an error not yet taken by wait() is logged

  // Waits for the save before, copies the tensors, and returns while they are written. `files` may hold live tensors.
  void save(int64_t step, CheckpointFiles files);
  // Until the save before is on disk. Throws what went wrong with it, once.
  void wait();

 private:
  void write(int64_t step, const CheckpointFiles& files);

  Options options_;
  std::filesystem::path checkpoints_;
  std::exception_ptr error_;
  std::jthread thread_;
};

}  // namespace vla
