#include "worker/data/loader.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {
namespace {

constexpr std::align_val_t kAlignment{64};

std::shared_ptr<std::byte> allocate_aligned(size_t bytes) {
  return {static_cast<std::byte*>(::operator new(bytes, kAlignment)),
          [](std::byte* data) { ::operator delete(data, kAlignment); }};
}

}  // namespace

// A slot goes through planned -> all rows claimed -> all rows done -> delivered -> released, and slots do so in order; counters
// therefore say everything: slot k % num_slots belongs to micro-batch k. All members but a slot's bytes are guarded by `mutex`.
struct Loader::State {
  struct BrokenRow {
    size_t row;
    std::string message;
  };
  struct Work {
    Slot slot;
    std::shared_ptr<std::byte> memory;
    std::vector<size_t> order;  // rows as they are claimed: by their places in the dataset
    size_t claimed = 0, done = 0;  // of them
    std::vector<BrokenRow> broken;
    std::exception_ptr error;

    bool is_claimed() const { return claimed == slot.batch.rows.size(); }
    bool is_done() const { return is_claimed() && done == claimed; }
  };
  // Entries [begin, end) of a slot's order, for one thread.
  struct Claim {
    Work* work = nullptr;
    size_t begin = 0, end = 0;
    std::vector<BrokenRow> broken = {};
  };

  std::shared_ptr<const Dataset> dataset;
  SampleRequest request;
  Plan plan;
  LoaderOptions options;
  SampleLayout layout;
  std::vector<size_t> offsets;

  std::mutex mutex;
  std::condition_variable work_changed, slot_changed;
  std::vector<Work> ring;
  int64_t planned = 0, delivered = 0, released = 0;  // counts of micro-batches
  bool ended = false, stop = false;
  std::chrono::nanoseconds waited{0};
  std::unique_ptr<SampleReader> own_reader;  // of next() when there are no threads
  SkippedRows skipped;
  std::set<int64_t> skipped_episodes;
  int hopeless_batches = 0;  // delivered in a row
  std::vector<std::jthread> threads;

  ~State();
  Work& work_of(int64_t batch) { return ring[static_cast<size_t>(batch % static_cast<int64_t>(ring.size()))]; }
  bool can_plan() const { return !ended && planned - released < static_cast<int64_t>(ring.size()); }
  bool can_claim() { return can_plan() || (planned > 0 && !work_of(planned - 1).is_claimed()); }
  bool next_is_ready() { return delivered < planned ? work_of(delivered).is_done() : ended; }

  void plan_next();
  Claim claim();
  std::exception_ptr fill(Claim& claim, std::unique_ptr<SampleReader>& reader);
  void finish(Claim& claim, std::exception_ptr error);
  std::string describe_row(int64_t sample, const char* message) const;
  void account_broken_rows(Work& work);
  void run_thread();
};

Loader::State::~State() {
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  work_changed.notify_all();
  threads.clear();
}

// Requires: mutex held.
void Loader::State::plan_next() {
  Work& work = work_of(planned);
  work.slot.batch = {};
  work.claimed = work.done = 0;
  work.broken.clear();
  work.error = nullptr;
  try {
    std::optional<MicroBatch> batch = plan(planned);
    if (batch && static_cast<int64_t>(batch->rows.size()) != options.rows) {
      throw cxxrun::Error("the plan's micro-batch {} has {} rows, the loader's slots have {}", planned,
                          batch->rows.size(), options.rows);
    }
    if (batch) {
      work.slot.batch = std::move(*batch);
      const auto& rows = work.slot.batch.rows;
      work.order.resize(rows.size());
      std::iota(work.order.begin(), work.order.end(), size_t{0});
      std::stable_sort(work.order.begin(), work.order.end(),
                       [&](size_t a, size_t b) { return rows[a].sample < rows[b].sample; });
    } else {
      ended = true;
    }
  } catch (...) {
    work.error = std::current_exception();
    ended = true;
    ++planned;  // an empty batch, done at once, whose delivery throws
    return;
  }
  if (!ended) ++planned;
}

// Requires: mutex held and can_claim().
Loader::State::Claim Loader::State::claim() {
  if (planned == 0 || work_of(planned - 1).is_claimed()) plan_next();
  if (planned == 0 || work_of(planned - 1).is_claimed()) return {};
  Work& work = work_of(planned - 1);
  // A thread's fair share in one piece: rows that need the same key frame are then decoded from it by one decoder, once.
  const size_t share = std::max<size_t>(1, work.order.size() / std::max<size_t>(1, threads.size()));
  const size_t begin = work.claimed;
  work.claimed = std::min(work.order.size(), begin + share);
  return {&work, begin, work.claimed};
}

std::exception_ptr Loader::State::fill(Claim& claim, std::unique_ptr<SampleReader>& reader) try {
  if (!reader) reader = dataset->open_reader(request);
  std::vector<std::byte*> destination(layout.fields.size());
  for (size_t entry = claim.begin; entry < claim.end; ++entry) {
    const size_t row = claim.work->order[entry];
    for (size_t i = 0; i < destination.size(); ++i)
      destination[i] = claim.work->slot.data + offsets[i] + row * layout.fields[i].bytes_per_row;
    const int64_t sample = claim.work->slot.batch.rows[row].sample;
    try {
      reader->read(sample, destination);
    } catch (const cxxrun::DataError& error) {
      if (!options.skip_broken_rows) throw cxxrun::DataError("{}", describe_row(sample, error.what()));
      for (size_t i = 0; i < destination.size(); ++i) std::memset(destination[i], 0, layout.fields[i].bytes_per_row);
      claim.broken.push_back({row, describe_row(sample, error.what())});
    }
  }
  return nullptr;
} catch (...) {
  return std::current_exception();
}

std::string Loader::State::describe_row(int64_t sample, const char* message) const {
  const Episode& episode = episode_of(dataset->episodes(), sample);
  return fmt::format("{} (sample {}: episode {} frame {})", message, sample, episode.index, sample - episode.begin);
}

// Requires: mutex held.
void Loader::State::finish(Claim& claim, std::exception_ptr error) {
  Work& work = *claim.work;
  work.done += claim.end - claim.begin;
  std::move(claim.broken.begin(), claim.broken.end(), std::back_inserter(work.broken));
  if (error) {
    if (!work.error) work.error = error;
    work.done += work.slot.batch.rows.size() - work.claimed;
    work.claimed = work.slot.batch.rows.size();
    ended = true;  // nothing after this batch will be asked for
  }
}

// At delivery, in order: messages and counts are then the same for any number of threads. Requires: mutex held, work done.
void Loader::State::account_broken_rows(Work& work) {
  if (work.broken.empty()) {
    hopeless_batches = 0;
    return;
  }
  auto& rows = work.slot.batch.rows;
  std::sort(work.broken.begin(), work.broken.end(), [](const BrokenRow& a, const BrokenRow& b) { return a.row < b.row; });
  for (const BrokenRow& broken : work.broken) {
    SampleRef& row = rows[broken.row];
    if (std::exchange(row.is_padding, true)) continue;
    ++skipped.rows;
    if (skipped.rows == 1) skipped.first_message = broken.message;
    if (!skipped_episodes.insert(episode_of(dataset->episodes(), row.sample).index).second) continue;
    ++skipped.episodes;
    cxxrun::log_warning("skipped, like every unreadable frame of this episode to come: {}", broken.message);
  }
  hopeless_batches = work.broken.size() == rows.size() ? hopeless_batches + 1 : 0;
  if (hopeless_batches < kHopelessBatches) return;
  throw cxxrun::DataError("no sample of {} micro-batches in a row can be read, which data.on_error=skip does not cover; the first: {}",
                          kHopelessBatches, skipped.first_message);
}

void Loader::State::run_thread() {
  std::unique_ptr<SampleReader> reader;
  std::unique_lock lock(mutex);
  for (;;) {
    work_changed.wait(lock, [&] { return stop || can_claim(); });
    if (stop) return;
    Claim claimed = claim();
    if (claimed.work != nullptr) {
      work_changed.notify_one();  // more rows of the same batch, or the next batch, may be there for another thread
      lock.unlock();
      const std::exception_ptr error = fill(claimed, reader);
      lock.lock();
      finish(claimed, error);
    }
    slot_changed.notify_one();
  }
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, SampleRequest request, Plan plan, LoaderOptions options)
    : state_(new State) {
  if (options.rows < 1 || options.num_threads < 0 || options.num_slots < 2) {
    throw cxxrun::UsageError("a loader needs at least 1 row, 0 threads and 2 slots, not {}, {} and {}", options.rows,
                             options.num_threads, options.num_slots);
  }
  State& s = *state_;
  s.layout = dataset->layout(request);
  s.offsets = s.layout.offsets(options.rows);
  s.dataset = std::move(dataset);
  s.request = std::move(request);
  s.plan = std::move(plan);
  s.options = std::move(options);
  s.ring.resize(static_cast<size_t>(s.options.num_slots));
  for (State::Work& work : s.ring) {
    work.memory = s.options.allocate ? s.options.allocate(s.offsets.back()) : allocate_aligned(s.offsets.back());
    work.slot.data = work.memory.get();
  }
  const std::lock_guard lock(s.mutex);  // threads.size() is read by the threads
  for (int i = 0; i < s.options.num_threads; ++i) s.threads.emplace_back([&s] { s.run_thread(); });
}

Loader::~Loader() = default;

const SampleLayout& Loader::layout() const { return state_->layout; }

const Slot* Loader::next() {
  State& s = *state_;
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(s.mutex);
  s.released = s.delivered;
  s.work_changed.notify_all();
  if (s.threads.empty()) {
    while (!s.next_is_ready()) {
      State::Claim claimed = s.claim();
      if (claimed.work != nullptr) s.finish(claimed, s.fill(claimed, s.own_reader));
    }
  } else {
    s.slot_changed.wait(lock, [&] { return s.next_is_ready(); });
  }
  s.waited += std::chrono::steady_clock::now() - start;
  if (s.delivered == s.planned) return nullptr;
  State::Work& work = s.work_of(s.delivered);
  if (work.error) std::rethrow_exception(work.error);
  s.account_broken_rows(work);
  ++s.delivered;
  return &work.slot;
}

std::chrono::nanoseconds Loader::waited() const { return state_->waited; }

const SkippedRows& Loader::skipped() const { return state_->skipped; }

}  // namespace vla::data
