// Where this process is in a training and with which sizes, kept for the report of a failure: exceptions are described in
// main, when the trainer is gone, and by the thread they end in. One per process; setters are cheap enough for every
// micro-batch. Thread-safe. Touches no device.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace vla {

struct TrainingSizes {
  int64_t batch_size = 0;  // training.batch_size
  int64_t per_gpu = 0;  // rows of a micro-batch
  int64_t accumulation = 1;
  int64_t effective = 0;  // samples of an optimizer step
  int64_t world_size = 1;
  int64_t num_workers = 0;  // of this rank
  std::string precision = {};
  std::string device = {};
};

struct TrainingPosition {
  int64_t rank = 0;
  int64_t step = 0;  // the one in work, counted from 1 as in the log; 0 = before the first
  int64_t total_steps = 0;
  std::string phase = {};  // "loading data", "forward pass", …
  std::vector<int64_t> samples = {};  // of this rank's micro-batch in work
  TrainingSizes sizes = {};  // per_gpu = 0: not known yet
};

// "rank 1, step 13 of 20, forward pass, samples 3 5 8"; "" before a training has begun.
std::string describe(const TrainingPosition& position);
// "training.batch_size=8 (2 per rank on 4 ranks), …"; "" if not known.
std::string describe(const TrainingSizes& sizes);

class TrainingContext {
 public:
  void set_sizes(int64_t rank, TrainingSizes sizes);
  void begin_step(int64_t step, int64_t total_steps);  // forgets the samples
  void enter(std::string phase);
  void set_samples(std::vector<int64_t> samples);
  TrainingPosition position() const;

 private:
  mutable std::mutex mutex_;
  TrainingPosition position_;
};

TrainingContext& training_context();

}  // namespace vla
