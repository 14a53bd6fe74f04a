// Decodes micro-batches ahead of the training loop: worker threads fill a ring of byte slots, the rows of a batch in the order they are
// stored in, and next() hands the slots out strictly in order whatever the number of threads. Memory, all of it taken at the start
// but the decoders': num_slots * layout().offsets(rows).back() bytes, and a reader of open files for each thread. An
// error in a thread is thrown by the next() that would have returned its batch; with skip_broken_rows a sample that cannot be read
// becomes padding instead. One consumer thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "worker/data/dataset.hpp"
#include "worker/data/sampler.hpp"

namespace vla::data {

struct LoaderOptions {
  int64_t rows = 0;  // of every micro-batch
  int num_threads = 2;  // 0: next() decodes itself
  int num_slots = 4;  // micro-batches in flight, the one in use included; at least 2
  // Slot memory; default operator new. A GPU trainer passes page-locked memory. Must be callable from the constructor's thread.
  std::function<std::shared_ptr<std::byte>(size_t bytes)> allocate = nullptr;
  // A row whose sample throws DataError is delivered as zeros with is_padding set. Which rows depends on the data alone. A stream
  // of kHopelessBatches micro-batches without a single readable row still throws.
  bool skip_broken_rows = false;
};
constexpr int kHopelessBatches = 20;

// What was left out of the micro-batches delivered so far.
struct SkippedRows {
  int64_t rows = 0;
  int64_t episodes = 0;  // distinct ones
  std::string first_message;
};

// A finished micro-batch. Valid until the next call of Loader::next().
struct Slot {
  MicroBatch batch;
  std::byte* data = nullptr;  // laid out as SampleLayout::offsets(rows) says
};

class Loader {
 public:
  // `plan(k)` gives the k-th micro-batch to deliver, k = 0, 1, …; called from one thread at a time. nullopt ends the stream.
  using Plan = std::function<std::optional<MicroBatch>(int64_t)>;

  Loader(std::shared_ptr<const Dataset> dataset, SampleRequest request, Plan plan, LoaderOptions options);
  ~Loader();  // stops and joins the threads at once, mid-stream too

  const SampleLayout& layout() const;
  // The next micro-batch in order, or nullptr at the end of the stream. Releases the slot returned before.
  const Slot* next();
  // Time the consumer has spent waiting in next() so far.
  std::chrono::nanoseconds waited() const;
  const SkippedRows& skipped() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace vla::data
