#include "worker/data/loader.hpp"

#include <atomic>
#include <thread>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

const SampleRequest kRequest = {{"observation.image", {}}, {"observation.state", {}}, {"action", {0, 1, 2}}};

Loader::Plan epochs(const Dataset& dataset, int64_t global_batch, int64_t steps, bool shuffle = true) {
  auto sampler = std::make_shared<Sampler>(
      SamplerOptions{.dataset_size = dataset.size(), .global_batch = global_batch, .seed = 3, .shuffle = shuffle});
  return [sampler, steps](int64_t step) -> std::optional<MicroBatch> {
    if (step >= steps) return std::nullopt;
    return sampler->micro_batch(step, 0, 1, 0, 1);
  };
}

std::vector<std::vector<std::byte>> all_slots(Loader& loader, int64_t rows) {
  std::vector<std::vector<std::byte>> slots;
  const SampleLayout& layout = loader.layout();
  const std::vector<size_t> offsets = layout.offsets(rows);
  while (const Slot* slot = loader.next()) {
    EXPECT_EQ(slot->batch.step, static_cast<int64_t>(slots.size()));
    auto& bytes = slots.emplace_back();
    for (size_t i = 0; i < layout.fields.size(); ++i) {
      const std::byte* field = slot->data + offsets[i];
      bytes.insert(bytes.end(), field, field + layout.fields[i].bytes_per_row * static_cast<size_t>(rows));
    }
  }
  return slots;
}

TEST(Loader, GivesTheSameBytesForAnyNumberOfThreads) {
  for (const bool shuffle : {true, false}) {
    const auto dataset = open_dataset({.root = "synthetic:frames=50,image=8x8"});
    std::vector<std::vector<std::byte>> expected;
    for (const int threads : {0, 1, 3}) {
      Loader loader(dataset, kRequest, epochs(*dataset, 8, 20, shuffle),
                    {.rows = 8, .num_threads = threads, .num_slots = 3});
      const auto slots = all_slots(loader, 8);
      ASSERT_EQ(slots.size(), 20U);
      if (threads == 0) expected = slots;
      EXPECT_EQ(slots, expected) << threads << " threads";
      EXPECT_EQ(loader.next(), nullptr) << "the end stays the end";
    }
  }
}

TEST(Loader, ReadsVideosTheSameWithThreeThreads) {
  const auto dataset = open_dataset({.root = kData + "/lerobot_h264", .episodes = {0, 3, 20}});
  std::vector<std::vector<std::byte>> expected;
  for (const int threads : {0, 3}) {
    Loader loader(dataset, kRequest, epochs(*dataset, 16, 5), {.rows = 16, .num_threads = threads, .num_slots = 2});
    const auto slots = all_slots(loader, 16);
    if (threads == 0) expected = slots;
    EXPECT_EQ(slots, expected);
  }
}

TEST(Loader, PadsTheShortBatchOfAnEpoch) {
  const auto dataset = open_dataset({.root = "synthetic:frames=10"});
  Loader loader(dataset, {{"action", {}}}, epochs(*dataset, 8, 2), {.rows = 8, .num_threads = 2});
  loader.next();
  const Slot* slot = loader.next();
  ASSERT_NE(slot, nullptr);
  const auto padding = std::count_if(slot->batch.rows.begin(), slot->batch.rows.end(),
                                     [](const SampleRef& row) { return row.is_padding; });
  EXPECT_EQ(padding, 6);
}

TEST(Loader, TakesItsMemoryFromTheCaller) {
  const auto dataset = open_dataset({.root = "synthetic:"});
  std::vector<std::byte*> given;
  const auto allocate = [&](size_t bytes) {
    std::shared_ptr<std::byte> memory(new std::byte[bytes], std::default_delete<std::byte[]>());
    given.push_back(memory.get());
    return memory;
  };
  Loader loader(dataset, {{"action", {}}}, epochs(*dataset, 4, 9),
                {.rows = 4, .num_threads = 1, .num_slots = 3, .allocate = allocate});
  EXPECT_EQ(given.size(), 3U);
  while (const Slot* slot = loader.next()) EXPECT_THAT(given, testing::Contains(slot->data));
  EXPECT_EQ(given.size(), 3U) << "none after the start";
}

// A dataset whose reader throws at one sample or at all that `is_bad` names, and counts what is read.
class FailingDataset : public Dataset {
 public:
  explicit FailingDataset(int64_t bad_sample)
      : FailingDataset([bad_sample](int64_t sample) { return sample == bad_sample; }) {
    opens_ = bad_sample >= 0;
  }
  explicit FailingDataset(std::function<bool(int64_t)> is_bad)
      : base_(open_dataset({.root = "synthetic:frames=1000"})), is_bad_(std::move(is_bad)) {}
  std::string description() const override { return base_->description(); }
  int64_t size() const override { return base_->size(); }
  double fps() const override { return base_->fps(); }
  const std::vector<Feature>& features() const override { return base_->features(); }
  const DatasetStats& stats() const override { return base_->stats(); }
  const std::vector<Episode>& episodes() const override { return base_->episodes(); }
  const std::vector<std::string>& tasks() const override { return base_->tasks(); }
  SampleLayout layout(const SampleRequest& request) const override { return base_->layout(request); }
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override {
    if (!opens_) throw cxxrun::DataError("the reader does not open");
    return std::make_unique<Reader>(*this, base_->open_reader(request));
  }
  int64_t reads() const { return reads_; }

 private:
  struct Reader : SampleReader {
    Reader(const FailingDataset& owner, std::unique_ptr<SampleReader> reader)
        : dataset(owner), base(std::move(reader)) {}
    void read(int64_t index, std::span<std::byte* const> destination) override {
      ++dataset.reads_;
      if (dataset.is_bad_(index)) throw cxxrun::DataError("sample {} is broken", index);
      base->read(index, destination);
    }
    const FailingDataset& dataset;
    std::unique_ptr<SampleReader> base;
  };
  std::shared_ptr<const Dataset> base_;
  std::function<bool(int64_t)> is_bad_;
  bool opens_ = true;
  mutable std::atomic<int64_t> reads_ = 0;
};

TEST(Loader, ThrowsAReadersErrorWhereItsBatchWouldCome) {
  for (const int threads : {0, 1, 3}) {
    const auto dataset = std::make_shared<FailingDataset>(19);
    Loader loader(dataset, {{"action", {}}}, epochs(*dataset, 8, 50, false), {.rows = 8, .num_threads = threads});
    EXPECT_NE(loader.next(), nullptr);
    EXPECT_NE(loader.next(), nullptr);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(message_of<cxxrun::DataError>([&] { loader.next(); }), "sample 19 is broken (sample 19: episode 0 frame 19)");
    }
  }
}

TEST(Loader, ThrowsWhenNoReaderOpensOrThePlanFails) {
  for (const int threads : {0, 2}) {
    const auto closed = std::make_shared<FailingDataset>(-1);
    Loader loader(closed, {{"action", {}}}, epochs(*closed, 8, 5), {.rows = 8, .num_threads = threads});
    EXPECT_EQ(message_of<cxxrun::DataError>([&] { loader.next(); }), "the reader does not open");

    const auto dataset = open_dataset({.root = "synthetic:"});
    const auto plan = [&](int64_t step) -> std::optional<MicroBatch> {
      if (step == 1) throw cxxrun::Error("no plan for step 1");
      return epochs(*dataset, 4, 5)(step);
    };
    Loader planless(dataset, {{"action", {}}}, plan, {.rows = 4, .num_threads = threads});
    EXPECT_NE(planless.next(), nullptr);
    EXPECT_EQ(message_of<cxxrun::Error>([&] { planless.next(); }), "no plan for step 1");
    Loader mis_sized(dataset, {{"action", {}}}, epochs(*dataset, 4, 5), {.rows = 3, .num_threads = threads});
    EXPECT_THAT(message_of<cxxrun::Error>([&] { mis_sized.next(); }), testing::HasSubstr("has 4 rows"));
  }
}

TEST(Loader, StopsInTheMiddleAndReadsNoFurtherThanItsRing) {
  const auto dataset = std::make_shared<FailingDataset>(100000);
  {
    Loader loader(dataset, {{"action", {}}}, epochs(*dataset, 10, 1000000),
                  {.rows = 10, .num_threads = 2, .num_slots = 3});
    EXPECT_NE(loader.next(), nullptr);
  }
  EXPECT_GE(dataset->reads(), 10);
  EXPECT_LE(dataset->reads(), 30);
  Loader unused(dataset, {{"action", {}}}, epochs(*dataset, 10, 5), {.rows = 10, .num_threads = 3});
}

// The stream's rows: sample number, is_padding, and whether all bytes are zero.
std::vector<std::tuple<int64_t, bool, bool>> all_rows(Loader& loader, size_t rows) {
  std::vector<std::tuple<int64_t, bool, bool>> result;
  const std::vector<size_t> offsets = loader.layout().offsets(static_cast<int64_t>(rows));
  while (const Slot* slot = loader.next()) {
    for (size_t row = 0; row < rows; ++row) {
      bool is_zero = true;
      for (size_t i = 0; i < loader.layout().fields.size(); ++i) {
        const size_t bytes = loader.layout().fields[i].bytes_per_row;
        const std::byte* value = slot->data + offsets[i] + row * bytes;
        is_zero = is_zero && std::all_of(value, value + bytes, [](std::byte b) { return b == std::byte{0}; });
      }
      result.emplace_back(slot->batch.rows[row].sample, slot->batch.rows[row].is_padding, is_zero);
    }
  }
  return result;
}

TEST(Loader, MakesBrokenRowsPaddingAndCountsThem) {
  const auto is_bad = [](int64_t sample) { return sample % 10 == 3 && sample < 500; };
  for (const int threads : {0, 1, 3}) {
    const auto dataset = std::make_shared<FailingDataset>(is_bad);
    Loader loader(dataset, {{"action", {}}}, epochs(*dataset, 8, 125),
                  {.rows = 8, .num_threads = threads, .skip_broken_rows = true});
    testing::internal::CaptureStderr();
    const auto rows = all_rows(loader, 8);
    const std::string warnings = testing::internal::GetCapturedStderr();
    ASSERT_EQ(rows.size(), 1000U);
    for (const auto& [sample, is_padding, is_zero] : rows) {
      EXPECT_EQ(is_padding, is_bad(sample)) << sample;
      EXPECT_EQ(is_zero, is_bad(sample)) << sample;
    }
    EXPECT_EQ(loader.skipped().rows, 50);
    EXPECT_EQ(loader.skipped().episodes, 2) << "of four episodes of 250 frames";
    EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 2) << "one line for each episode: " << warnings;
    const auto first = std::find_if(rows.begin(), rows.end(), [](const auto& row) { return std::get<1>(row); });
    EXPECT_THAT(loader.skipped().first_message, testing::StartsWith(fmt::format("sample {} is broken", std::get<0>(*first))));
  }
}

TEST(Loader, GivesUpWhenNothingCanBeReadForTwentyBatches) {
  for (const int threads : {0, 3}) {
    // The batch of samples 152 to 159 is the only one with a sample to train on.
    const auto dataset = std::make_shared<FailingDataset>([](int64_t sample) { return sample != 155; });
    Loader loader(dataset, {{"action", {}}}, epochs(*dataset, 8, 125, false),
                  {.rows = 8, .num_threads = threads, .skip_broken_rows = true});
    for (int i = 0; i < 20 + kHopelessBatches - 1; ++i) ASSERT_NE(loader.next(), nullptr);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(message_of<cxxrun::DataError>([&] { loader.next(); }),
                  testing::AllOf(testing::HasSubstr("20 micro-batches"), testing::HasSubstr("sample 0 is broken")));
    }
  }
}

TEST(Loader, DoesNotSkipErrorsThatAreNotAboutTheData) {
  const auto dataset = std::make_shared<FailingDataset>([](int64_t) -> bool { throw cxxrun::Error("out of file handles"); });
  Loader loader(dataset, {{"action", {}}}, epochs(*dataset, 8, 5), {.rows = 8, .skip_broken_rows = true});
  EXPECT_EQ(message_of<cxxrun::Error>([&] { loader.next(); }), "out of file handles");
}

}  // namespace
}  // namespace vla::data
