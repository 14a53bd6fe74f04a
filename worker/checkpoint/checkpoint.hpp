// Saves checkpoints: <output_dir>/checkpoints/000123/ with pretrained_model/ and training_state/, and the relative links `last` and
// `best`. A checkpoint becomes visible whole or not at all. A save that fails (disk full, read-only) leaves the earlier ones as they
// were, is logged, and is no exception: training goes on. Only rank 0 writes. CheckpointWriter copies the tensors and writes behind
// the training; used by one thread, owns another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "worker/checkpoint/host_snapshot.hpp"
#include "worker/checkpoint/retention.hpp"
#include "worker/checkpoint/training_state.hpp"

namespace vla {

class CheckpointWriter {
 public:
  struct Options {
    std::filesystem::path output_dir;
    Retention retention = {};
    std::optional<BestCheckpoint> best = {};  // of the run that is continued
    at::Device device = at::kCPU;  // of the tensors: a GPU is prepared for its first save
    int64_t expected_bytes = 0;  // of a checkpoint; 0 = unknown. A warning at once where the disk has no room for three
    std::function<void()> after_each_operation = [] {};  // called by the writing thread; tests interrupt it there
  };

  explicit CheckpointWriter(Options options);  // Error when the folder cannot be made
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();  // finishes writing

  // Waits for the save before and queues copies of the tensors, which may be live ones: training may go on.
  void take(CheckpointFiles files);
  // Returns while what was taken is written as checkpoint state.step, together with `state`. The lowest `validation_loss` so far makes
  // this checkpoint the best one; state.best is filled in here.
  void save(TrainingState state, std::optional<double> validation_loss = {});
  // Until the last save has ended. Returns whether it is on disk (true before the first).
  bool wait();
  int64_t failures() const { return failures_; }  // of the saves that were waited for

 private:
  void write(int64_t step);
  void replace_links(int64_t step);

  Options options_;
  std::filesystem::path checkpoints_;
  HostSnapshot snapshot_;
  CheckpointFiles files_;  // taken; of thread_ while it runs
  std::optional<BestCheckpoint> best_;  // if the save that is running succeeds
  std::optional<BestCheckpoint> saved_best_;
  bool is_saved_ = true;  // set by thread_
  bool warned_of_waiting_ = false;
  int64_t failures_ = 0;
  std::jthread thread_;
};

}  // namespace vla
