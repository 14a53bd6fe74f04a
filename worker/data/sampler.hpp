// Which samples make up each global batch and which of them a rank's micro-batch holds. Pure functions of (seed, step):
// nothing to save or restore, and independent of world size and thread count. A Sampler caches the epoch's order: one thread.
#pragma once

#include <cstdint>
#include <vector>

namespace vla::data {

// NumPy's SeedSequence([seed, epoch]).generate_state(1, uint64)[0].
uint64_t epoch_seed(uint64_t seed, uint64_t epoch);

// torch.randperm(count, generator=Generator().manual_seed(seed)) on the CPU.
std::vector<int64_t> random_permutation(int64_t count, uint64_t seed);

struct SampleRef {
  int64_t sample = 0;  // number in the dataset
  int64_t position = 0;  // in the global batch: what noise and dropout are functions of
  bool is_padding = false;  // fills a micro-batch up to its size; weight 0 in the loss
};

struct MicroBatch {
  int64_t step = 0;
  int64_t epoch = 0;
  std::vector<SampleRef> rows;
};

// A run of consecutive samples and how often it is to be seen, relative to the other parts.
struct SamplerPart {
  int64_t size = 0;
  double weight = 0;
};

struct SamplerOptions {
  int64_t dataset_size = 0;
  int64_t global_batch = 0;
  uint64_t seed = 1000;
  bool shuffle = true;
  bool drop_last = false;  // drop the short batch at an epoch's end instead of training on fewer rows
  // Empty: every sample once an epoch. Else the dataset's parts in order: an epoch still has dataset_size samples, each part a share of
  // them by its weight, taken from one endless series of shuffles of the part, so that its samples are seen equally often.
  std::vector<SamplerPart> parts = {};
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // UsageError for sizes or weights that cannot be

  int64_t steps_per_epoch() const;
  int64_t global_batch_size(int64_t step) const;  // without making the epoch's order
  int64_t consumed_samples(int64_t steps) const;  // by the first `steps` steps
  // Samples of a step's global batch, at most global_batch of them (fewer at an epoch's end without drop_last).
  std::vector<int64_t> global_batch(int64_t step) const;
  // The part of `rank` in micro-batch `micro` of `accumulation`, padded to micro_batch_rows. The global batch is cut into
  // accumulation * world_size contiguous parts whose sizes differ by at most one; part number = micro * world_size + rank.
  MicroBatch micro_batch(int64_t step, int64_t micro, int64_t accumulation, int64_t rank, int64_t world_size) const;

 private:
  const std::vector<int64_t>& epoch_order(int64_t epoch) const;
  void count_shares();
  std::vector<int64_t> samples_of_parts(int64_t epoch) const;

  SamplerOptions options_;
  std::vector<int64_t> shares_;  // samples of each part in an epoch
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<int64_t> order_;
};

// ceil(global_batch / (accumulation * world_size)): the static number of rows of every micro-batch.
int64_t micro_batch_rows(int64_t global_batch, int64_t accumulation, int64_t world_size);

}  // namespace vla::data
