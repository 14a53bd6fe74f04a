#include "worker/data/mixture.hpp"

#include <algorithm>
#include <set>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"
#include "worker/data/episode_subset.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Dataset> open(const std::string& name) { return open_dataset({.root = kData + "/" + name}); }

TEST(Mixture, IsItsPartsOneAfterAnother) {
  const auto first = open("lerobot_v21"),
             second = open_dataset({.root = kData + "/metaworld_demo", .episodes = {0, 30}});
  const auto mixture = mix_datasets({{first}, {second}});
  ASSERT_EQ(mixture->size(), first->size() + second->size());
  EXPECT_EQ(mixture->episodes().size(), 8U);
  EXPECT_EQ(mixture->episodes()[6].begin, 388);
  const SampleRequest request = {{"action", {0, 1}}, {"observation.image", {}}, {"observation.state", {-1, 0}}};
  const SampleLayout layout = mixture->layout(request);
  const auto reader = mixture->open_reader(request), in_first = first->open_reader(request),
             in_second = second->open_reader(request);
  for (const int64_t i : {0, 387, 388, 437, 438, 500}) {
    const Sample mixed(layout, *reader, i);
    const Sample alone(layout, i < 388 ? *in_first : *in_second, i < 388 ? i : i - 388);
    for (const char* key : {"action", "action_is_pad", "observation.image", "observation.state", "frame_index"})
      EXPECT_EQ(mixed.get<std::byte>(key), alone.get<std::byte>(key)) << key << " of sample " << i;
    EXPECT_EQ(mixed.number("index"), i);
    const auto& dataset = i < 388 ? *first : *second;
    EXPECT_EQ(mixture->tasks()[static_cast<size_t>(mixed.number("task_index"))],
              dataset.tasks()[static_cast<size_t>(alone.number("task_index"))]);
  }
  EXPECT_THAT(reader->decoding_group(400),
              testing::Pair(testing::AllOf(testing::Gt(388), testing::Le(400)), testing::Gt(400)));
  EXPECT_EQ(Sample(layout, *reader, 437).number("episode_index"), 6);
  EXPECT_EQ(Sample(layout, *reader, 438).number("episode_index"), 7);
  EXPECT_EQ(mixture->tasks().size(), 3U) << "equal texts are one task";
  EXPECT_THAT(mixture->description(), AllOf(HasSubstr("lerobot_v21"), HasSubstr("metaworld_demo")));
}

TEST(Mixture, TasksAreMergedByText) {
  const auto three = open_dataset({.root = "synthetic:frames=12,episodes=3,task_count=3"});
  const auto mixture = mix_datasets({{open_dataset({.root = "synthetic:frames=12,episodes=3,task_count=1"})}, {three}});
  EXPECT_THAT(mixture->tasks(), ElementsAre("synthetic task 0", "synthetic task 1", "synthetic task 2"));
  const SampleLayout layout = mixture->layout({});
  const auto reader = mixture->open_reader({});
  EXPECT_EQ(Sample(layout, *reader, 12 + 4).number("task_index"), 1);
}

TEST(Mixture, KeepsTheFeaturesThatAllHave) {
  const auto mixture = mix_datasets({{open("lerobot_v21")}, {open_dataset({.root = "synthetic:state=4,action=4"})}});
  std::vector<std::string> keys;
  for (const Feature& feature : mixture->features()) keys.push_back(feature.key);
  EXPECT_THAT(keys, ElementsAre("observation.state", "action"));
  EXPECT_FALSE(mixture->stats().contains("observation.image"));
  EXPECT_THROW(mixture->layout({{"observation.image", {}}}), cxxrun::UsageError);
}

TEST(Mixture, UnlikeFeaturesAreRefusedByName) {
  EXPECT_THAT(message_of<cxxrun::UsageError>([] {
                mix_datasets({{open("lerobot_v21")}, {open_dataset({.root = "synthetic:state=7,action=4"})}});
              }),
              AllOf(HasSubstr("'observation.state'"), HasSubstr("float32 [4]"), HasSubstr("float32 [7]"),
                    HasSubstr("part 1"), HasSubstr("part 2"), HasSubstr("synthetic:state=7")));
}

TEST(Mixture, StatisticsAreThoseOfAllParts) {
  const auto first = open("lerobot_v21"), second = open("metaworld_demo");
  const auto mixture = mix_datasets({{first}, {second}});
  const auto value = [](const Dataset& dataset, const char* stat) {
    return dataset.stats().at("action").at(stat).values[0];
  };
  const double a = value(*first, "count"), b = value(*second, "count");
  EXPECT_EQ(value(*mixture, "count"), a + b);
  EXPECT_THAT(value(*mixture, "mean"),
              DoubleNear((a * value(*first, "mean") + b * value(*second, "mean")) / (a + b), 1e-12));
  EXPECT_EQ(value(*mixture, "max"), std::max(value(*first, "max"), value(*second, "max")));
}

TEST(Mixture, ErrorsNameThePart) {
  const TempDir dir;
  const std::string root = dir.copy("lerobot_v21");
  const auto mixture = mix_datasets({{open("lerobot_v21")}, {open_dataset({.root = root})}});
  std::filesystem::remove_all(root + "/videos");
  const SampleRequest request = {{"observation.image", {}}};
  const SampleLayout layout = mixture->layout(request);
  const auto reader = mixture->open_reader(request);
  EXPECT_NO_THROW(Sample(layout, *reader, 0));
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { Sample(layout, *reader, 388); }),
              AllOf(HasSubstr("part 2 of the mixture"), HasSubstr(root)));
}

TEST(Mixture, WeightsAreForAllOrNone) {
  const auto dataset = open_dataset({.root = "synthetic:frames=12"});
  EXPECT_TRUE(sampler_parts({{dataset}, {dataset}}).empty());
  EXPECT_EQ(sampler_parts({{dataset, 1}, {dataset, 3}})[1].weight, 3);
  EXPECT_EQ(sampler_parts({{dataset, 1}, {dataset, 3}})[1].size, 12);
  EXPECT_THROW(sampler_parts({{dataset, 1}, {dataset}}), cxxrun::UsageError);
  EXPECT_THROW(sampler_parts({{dataset, 1}, {dataset, -1}}), cxxrun::UsageError);
}

TEST(EpisodeSubset, EqualsTheEpisodeFilter) {
  const auto all = open("lerobot_v21"), subset = episode_subset(all, {1, 4}),
             filtered = open_dataset({.root = kData + "/lerobot_v21", .episodes = {1, 4}});
  ASSERT_EQ(subset->size(), filtered->size());
  EXPECT_EQ(subset->episodes()[1].index, 4);
  const SampleRequest request = {{"action", {-1, 0, 1}}, {"observation.image", {}}};
  const SampleLayout layout = subset->layout(request);
  const auto reader = subset->open_reader(request), in_filtered = filtered->open_reader(request);
  for (const int64_t i : {int64_t{0}, int64_t{54}, int64_t{55}, subset->size() - 1})
    EXPECT_TRUE(Sample(layout, *reader, i) == Sample(layout, *in_filtered, i)) << i;
  EXPECT_THROW(Sample(layout, *reader, subset->size()), cxxrun::Error);
  EXPECT_THROW(episode_subset(all, {}), cxxrun::UsageError);
}

}  // namespace
}  // namespace vla::data
