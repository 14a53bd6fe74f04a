#include "tests/worker/data/support.hpp"

#include "common/error.hpp"

namespace vla::data {
namespace {

std::shared_ptr<const Dataset> open(const std::string& root, std::vector<int64_t> episodes = {}) {
  return open_dataset({.root = root, .episodes = std::move(episodes)});
}

TEST(Synthetic, HasTheSizesOfItsName) {
  const auto dataset = open("synthetic:frames=10,state=3,action=2,image=6x8,episodes=3,task_count=2");
  EXPECT_EQ(dataset->size(), 10);
  EXPECT_EQ(dataset->tasks().size(), 2U);
  ASSERT_EQ(dataset->episodes().size(), 3U);
  EXPECT_EQ(dataset->episodes()[2].end, 10);
  const SampleRequest request = {{"observation.image", {}}, {"observation.state", {}}, {"action", {0, 1, 2, 3}}};
  const SampleLayout layout = dataset->layout(request);
  const auto reader = dataset->open_reader(request);
  const Sample last(layout, *reader, 9);
  EXPECT_EQ(last.shape("observation.image"), (std::vector<int64_t>{6, 8, 3}));
  EXPECT_EQ(last.shape("action"), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(last.get<uint8_t>("action_is_pad"), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(last.number("episode_index"), 2);
  EXPECT_TRUE(last == Sample(layout, *reader, 9));
  EXPECT_FALSE(last == Sample(layout, *reader, 8));
}

TEST(Synthetic, FilteredEpisodeHasTheSameValues) {
  const SampleRequest request = {{"observation.state", {-1, 0}}};
  const auto all = open("synthetic:frames=10,episodes=3"), one = open("synthetic:frames=10,episodes=3", {1});
  EXPECT_EQ(one->size(), 3);
  const SampleLayout layout = all->layout(request);
  EXPECT_TRUE(Sample(layout, *one->open_reader(request), 0) == Sample(layout, *all->open_reader(request), 3));
}

TEST(Synthetic, RefusesUnknownPartsAndEpisodes) {
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { open("synthetic:frmes=3"); }), testing::HasSubstr("'frmes'"));
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { open("synthetic:image=3"); }),
              testing::HasSubstr("not a positive number"));
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { open("synthetic:episodes=2", {2}); }), testing::HasSubstr("0 to 1"));
  EXPECT_THAT(message_of<cxxrun::UsageError>([] {
                open("synthetic:")->layout({{"observation.stat", {}}});
              }),
              testing::HasSubstr("did you mean 'observation.state'"));
  EXPECT_THAT(message_of<cxxrun::DataError>([] { open("/nonexistent"); }), testing::HasSubstr("'/nonexistent'"));
}

TEST(SampleLayout, AlignsEveryFieldTo64Bytes) {
  const SampleLayout layout =
      open("synthetic:state=3,action=2")->layout({{"observation.state", {}}, {"action", {0, 1, 2}}});
  const std::vector<size_t> offsets = layout.offsets(6);
  EXPECT_EQ(offsets, (std::vector<size_t>{0, 128, 320, 384, 448, 512, 576, 640}))
      << "state 72, action 144, mask 18, four keys of 48 bytes";
}

TEST(Synthetic, HasAsManyCamerasAsAskedFor) {
  const auto dataset = open("synthetic:frames=8,image=6x4,cameras=2");
  std::vector<std::string> cameras;
  for (const Feature& feature : dataset->features()) {
    if (feature.type == FeatureType::kVisual) cameras.push_back(feature.key);
  }
  EXPECT_EQ(cameras, (std::vector<std::string>{"observation.images.camera0", "observation.images.camera1"}));
  for (const std::string& key : cameras) EXPECT_TRUE(dataset->stats().contains(key)) << key;
}

}  // namespace
}  // namespace vla::data
