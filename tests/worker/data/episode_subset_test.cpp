#include "worker/data/episode_subset.hpp"

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"
#include "worker/data/sampler.hpp"

namespace vla::data {
namespace {

// Three episodes of 9, 5 and 11 frames.
std::shared_ptr<const Dataset> demo() { return open_dataset({.root = kData + "/goldens/dp/demo.zarr"}); }

const SampleRequest kChunk = {{"action", {0, 1, 2, 3, 4, 5, 6, 7}}};

TEST(DropLastFrames, IsTrainedInTheOrderOfLeRobotsEpisodeAwareSampler) {
  const auto dataset = drop_last_frames(demo(), 5);
  ASSERT_EQ(dataset->size(), 10);
  const SampleLayout layout = dataset->layout(kChunk);
  const auto reader = dataset->open_reader(kChunk);
  const Sampler sampler({.dataset_size = dataset->size(), .global_batch = dataset->size(), .seed = 1000});
  // list(EpisodeAwareSampler([0, 9, 14], [9, 14, 25], drop_n_last_frames=5, shuffle=True, seed=1000)), of LeRobot 0.6.1, twice
  const std::vector<std::vector<int64_t>> epochs = {{2, 0, 15, 19, 1, 18, 17, 3, 16, 14}, {14, 0, 18, 16, 2, 1, 19, 15, 17, 3}};
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> frames;
    for (const int64_t sample : sampler.global_batch(epoch)) frames.push_back(Sample(layout, *reader, sample).number("index"));
    EXPECT_EQ(frames, epochs[static_cast<size_t>(epoch)]);
  }
}

TEST(DropLastFrames, LeavesChunksAsTheyWere) {
  const auto whole = demo(), dropped = drop_last_frames(whole, 5);
  const SampleLayout layout = whole->layout(kChunk);
  const auto reader = whole->open_reader(kChunk), dropped_reader = dropped->open_reader(kChunk);
  for (int64_t sample = 0; sample < 4; ++sample) EXPECT_TRUE(Sample(layout, *dropped_reader, sample) == Sample(layout, *reader, sample));
  for (int64_t sample = 4; sample < 10; ++sample) EXPECT_TRUE(Sample(layout, *dropped_reader, sample) == Sample(layout, *reader, sample + 10));
  EXPECT_EQ(dropped->episodes().size(), 2U);
  EXPECT_EQ(drop_last_frames(whole, 0), whole);
}

TEST(DropLastFrames, LeavingNothingIsAUsageError) {
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { drop_last_frames(demo(), 11); }), testing::HasSubstr("policy.drop_n_last_frames = 11 leaves nothing"));
}

}  // namespace
}  // namespace vla::data
