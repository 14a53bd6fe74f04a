#include "worker/data/cached_dataset.hpp"

#include <atomic>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"
#include "worker/data/loader.hpp"
#include "worker/data/video_reader.hpp"

namespace vla::data {
namespace {

constexpr char kCamera[] = "observation.image";
const SampleRequest kRequest = {{kCamera, {-3, 0}}, {"observation.state", {}}, {"action", {0, 1, 2}}};

// Passes everything on and counts the frames that are read from the camera.
class CountingDataset : public Dataset {
 public:
  explicit CountingDataset(std::shared_ptr<const Dataset> base) : base_(std::move(base)) {}
  std::string description() const override { return base_->description(); }
  int64_t size() const override { return base_->size(); }
  double fps() const override { return base_->fps(); }
  const std::vector<Feature>& features() const override { return base_->features(); }
  const DatasetStats& stats() const override { return base_->stats(); }
  const std::vector<Episode>& episodes() const override { return base_->episodes(); }
  const std::vector<std::string>& tasks() const override { return base_->tasks(); }
  SampleLayout layout(const SampleRequest& request) const override { return base_->layout(request); }
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override {
    const bool has_camera = std::any_of(request.begin(), request.end(), [](const auto& f) { return f.key == kCamera; });
    return std::make_unique<Reader>(has_camera ? &frames_ : nullptr, base_->open_reader(request));
  }
  int64_t frames() const { return frames_; }

 private:
  struct Reader : SampleReader {
    Reader(std::atomic<int64_t>* count, std::unique_ptr<SampleReader> reader) : count(count), base(std::move(reader)) {}
    void read(int64_t index, std::span<std::byte* const> destination) override {
      if (count != nullptr) ++*count;
      base->read(index, destination);
    }
    std::pair<int64_t, int64_t> decoding_group(int64_t index) override { return base->decoding_group(index); }
    std::atomic<int64_t>* count;
    std::unique_ptr<SampleReader> base;
  };
  std::shared_ptr<const Dataset> base_;
  mutable std::atomic<int64_t> frames_ = 0;
};

std::shared_ptr<CountingDataset> counting(const std::string& root, const std::vector<int64_t>& episodes = {}) {
  return std::make_shared<CountingDataset>(open_dataset({.root = root, .episodes = episodes}));
}

void expect_equal(const Dataset& expected, const Dataset& dataset, const SampleRequest& request = kRequest) {
  const SampleLayout layout = expected.layout(request);
  const auto reader = expected.open_reader(request), cached = dataset.open_reader(request);
  for (int64_t i = 0; i < expected.size(); ++i) {
    const int64_t sample = i * 17 % expected.size();
    ASSERT_TRUE(Sample(layout, *reader, sample) == Sample(layout, *cached, sample)) << sample;
  }
}

class CachedDatasetTest : public testing::Test {
 protected:
  std::shared_ptr<const Dataset> cached(std::shared_ptr<const Dataset> dataset, const std::string& mode, double gigabytes = 1,
                                        const std::string& root = kData + "/lerobot_h264") {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const DataOptions options{.cache = mode, .cache_gb = gigabytes, .cache_dir = dir_.path() + "/frames"};
    memory_ = frame_memory(options, 1);
    auto result = cached_dataset(std::move(dataset), kRequest, options, {root}, memory_);
    output_ = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
    return result;
  }
  TempDir dir_;
  std::string output_;
  uint64_t memory_ = 0;  // left of the budget
};

TEST_F(CachedDatasetTest, GivesTheSameSamplesAndDecodesEachFrameOnce) {
  for (const std::string mode : {"ram", "disk"}) {
    for (const std::string name : {"lerobot_h264", "lerobot_png", "metaworld_demo"}) {
      const auto plain = open_dataset({.root = kData + "/" + name, .episodes = {0, 2}});
      const auto counted = counting(kData + "/" + name, {0, 2});
      const auto dataset = cached(counted, mode, 1, kData + "/" + name);
      for (int epoch = 0; epoch < 2; ++epoch) {
        expect_equal(*plain, *dataset);
        EXPECT_EQ(counted->frames(), plain->size()) << mode << " " << name << " epoch " << epoch;
      }
    }
  }
}

TEST_F(CachedDatasetTest, KeepsReorderedAndTrimmedVideosRight) {
  for (const std::string name : {"hevc_backward_seek", "trimmed_by_edit_list", "leftover_frames_between_episodes"}) {
    const std::string root = kData + "/hard/" + name + "/data";
    const auto plain = open_dataset({.root = root});
    const SampleRequest camera = {{"observation.images.top", {}}};
    uint64_t memory = 1'000'000'000;
    expect_equal(*plain, *cached_dataset(plain, camera, {.cache = "ram"}, {root}, memory), camera);
    EXPECT_LT(memory, 1'000'000'000U);
  }
}

TEST_F(CachedDatasetTest, OnDiskServesLaterRuns) {
  const auto plain = open_dataset({.root = kData + "/lerobot_h264", .episodes = {0, 2}});
  expect_equal(*plain, *cached(plain, "disk"));
  const auto counted = counting(kData + "/lerobot_h264", {0, 2});
  expect_equal(*plain, *cached(counted, "disk"));
  EXPECT_EQ(counted->frames(), 0);
}

TEST_F(CachedDatasetTest, OnDiskKeepsEditedDatasetsAndOtherSelectionsApart) {
  const std::string root = dir_.copy("lerobot_h264");
  const auto frames_read = [&](const std::vector<int64_t>& episodes) {
    const auto counted = counting(root, episodes);
    expect_equal(*open_dataset({.root = root, .episodes = episodes}), *cached(counted, "disk", 1, root));
    return counted->frames();
  };
  EXPECT_GT(frames_read({3}), 0);
  EXPECT_EQ(frames_read({3}), 0);
  EXPECT_GT(frames_read({4}), 0);
  EXPECT_EQ(frames_read({3}), 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".mp4") continue;
    std::filesystem::last_write_time(entry.path(), entry.last_write_time() + std::chrono::seconds(1));
  }
  EXPECT_GT(frames_read({3}), 0);
}

TEST_F(CachedDatasetTest, KeepsWhatFitsWhereNotAllDoes) {
  const auto plain = open_dataset({.root = kData + "/lerobot_h264", .episodes = {0, 2}});
  const auto counted = counting(kData + "/lerobot_h264", {0, 2});
  const auto dataset = cached(counted, "ram", 0.001);
  EXPECT_THAT(output_, testing::HasSubstr("as many as fit"));
  expect_equal(*plain, *dataset);
  const int64_t first = counted->frames();
  expect_equal(*plain, *dataset);
  const int64_t second = counted->frames() - first;
  EXPECT_LT(second, first);
  EXPECT_GT(second, 0);
}

TEST_F(CachedDatasetTest, StaysAsItIsWithoutCamerasOrRoom) {
  const auto dataset = open_dataset({.root = "synthetic:frames=20"});
  EXPECT_EQ(cached_dataset(dataset, {{"action", {}}}, {.cache = "ram"}, {}, memory_), dataset);
  const auto camera = open_dataset({.root = "synthetic:frames=20,image=8x8"});
  EXPECT_EQ(cached(camera, "none"), camera);
  write_text(dir_.path() + "/frames", "a file where a folder should be");
  EXPECT_EQ(cached(camera, "disk"), camera);
  EXPECT_THAT(output_, testing::HasSubstr("frame cache: none"));
}

TEST_F(CachedDatasetTest, SaysWhatItChose) {
  const auto dataset = open_dataset({.root = kData + "/lerobot_h264"});
  cached(dataset, "auto");
  EXPECT_THAT(output_, testing::StartsWith("frame cache: memory, " + std::to_string(dataset->size()) + " frames of 1 cameras"));
  const size_t frame = static_cast<size_t>(dataset->features()[0].shape[0] * dataset->features()[0].shape[1] * 3);
  EXPECT_EQ(memory_, 1'000'000'000 - static_cast<size_t>(dataset->size()) * frame) << "left for another dataset";
  cached(dataset, "auto", 0.001);
  EXPECT_THAT(output_, testing::StartsWith("frame cache: " + dir_.path() + "/frames/"));
}

// All bytes of three epochs, then which rows are padding.
std::vector<std::byte> batches(std::shared_ptr<const Dataset> dataset, int threads) {
  const Sampler sampler({.dataset_size = dataset->size(), .global_batch = 16});
  const auto plan = [&](int64_t step) -> std::optional<MicroBatch> {
    if (step >= 3 * sampler.steps_per_epoch()) return std::nullopt;
    return sampler.micro_batch(step, 0, 1, 0, 1);
  };
  Loader loader(dataset, kRequest, plan, {.rows = 16, .num_threads = threads, .skip_broken_rows = true});
  const std::vector<size_t> offsets = loader.layout().offsets(16);
  std::vector<std::byte> result, is_padding;
  while (const Slot* slot = loader.next()) {
    for (size_t i = 0; i < loader.layout().fields.size(); ++i) {
      const std::byte* field = slot->data + offsets[i];
      result.insert(result.end(), field, field + loader.layout().fields[i].bytes_per_row * 16);
    }
    for (const SampleRef& row : slot->batch.rows) is_padding.push_back(std::byte{row.is_padding});
  }
  result.insert(result.end(), is_padding.begin(), is_padding.end());
  return result;
}

TEST_F(CachedDatasetTest, GivesTheSameBatchesForAnyNumberOfThreads) {
  const auto plain = open_dataset({.root = kData + "/lerobot_h264", .episodes = {0, 2}});
  const auto expected = batches(plain, 0);
  for (const std::string mode : {"none", "ram", "disk"}) EXPECT_TRUE(batches(cached(plain, mode), 3) == expected) << mode;
}

TEST_F(CachedDatasetTest, SkipsTheSameRowsOfADamagedVideo) {
  const std::string root = dir_.copy("lerobot_h264");
  std::fstream video(root + "/videos/observation.image/chunk-000/file-000.mp4", std::ios::binary | std::ios::in | std::ios::out);
  for (const int64_t place : {30'000, 60'000}) {  // in episodes 0 to 2
    video.seekp(place);
    video << std::string(3000, '\xff');
  }
  video.close();
  const auto plain = open_dataset({.root = root, .episodes = {0, 1, 2}});
  const auto expected = batches(plain, 0);
  const SampleLayout layout = plain->layout(kRequest);
  const auto reader = plain->open_reader(kRequest);
  int64_t broken = 0;
  for (int64_t sample = 0; sample < plain->size(); ++sample)
    broken += message_of<cxxrun::DataError>([&] { Sample(layout, *reader, sample); }).empty() ? 0 : 1;
  EXPECT_GT(broken, 0);
  EXPECT_LT(broken, plain->size() / 2);
  for (const std::string mode : {"none", "ram", "disk"}) EXPECT_TRUE(batches(cached(plain, mode, 1, root), 3) == expected) << mode;
}

TEST(FrameMemory, IsSharedByTheRanksOfANode) {
  EXPECT_EQ(frame_memory({.cache_gb = 3}, 2), 1'500'000'000U);
  EXPECT_GT(frame_memory({}, 1), frame_memory({}, 8)) << "of what is free";
}

TEST(ChooseCache, PrefersMemoryThenDiskThenPartOfMemory) {
  struct Case {
    const char* mode;
    CacheFacts facts;
    CacheKind expected;
  };
  const Case cases[] = {
      {"none", {10, 100, 100}, CacheKind::kNone},     {"auto", {10, 10, 0}, CacheKind::kMemory},
      {"auto", {10, 9, 20}, CacheKind::kDisk},        {"auto", {10, 9, 19}, CacheKind::kPartialMemory},
      {"auto", {10, 0, 19}, CacheKind::kNone},        {"ram", {10, 10, 100}, CacheKind::kMemory},
      {"ram", {10, 9, 100}, CacheKind::kPartialMemory}, {"ram", {10, 0, 100}, CacheKind::kNone},
      {"disk", {10, 100, 10}, CacheKind::kDisk},      {"disk", {10, 100, 9}, CacheKind::kNone},
      {"auto", {0, 100, 100}, CacheKind::kNone},
  };
  for (const Case& c : cases)
    EXPECT_EQ(choose_cache(c.mode, c.facts), c.expected) << c.mode << " " << c.facts.needed << " " << c.facts.memory << " " << c.facts.disk;
}

}  // namespace
}  // namespace vla::data
