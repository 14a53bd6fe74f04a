#include "worker/data/renamed_dataset.hpp"

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::shared_ptr<const Dataset> original() { return open_dataset({.root = "synthetic:frames=10,state=3,action=2,image=6x8,episodes=3"}); }

std::shared_ptr<const Dataset> renamed(const std::vector<std::string>& map) { return rename_features(original(), map); }

TEST(RenamedDataset, GivesTheSameSamplesUnderThePolicysKeys) {
  const auto before = original(), after = renamed({"observation.image=observation.images.top", "action=action_is_pad_too"});
  const SampleRequest old_request = {{"observation.image", {-1, 0}}, {"observation.state", {}}, {"action", {0, 1, 2}}};
  const SampleRequest new_request = {{"observation.images.top", {-1, 0}}, {"observation.state", {}}, {"action_is_pad_too", {0, 1, 2}}};
  const SampleLayout layout = after->layout(new_request), old_layout = before->layout(old_request);
  std::vector<std::string> keys;
  for (const Field& field : layout.fields) keys.push_back(field.key);
  EXPECT_THAT(keys, testing::IsSupersetOf({"observation.images.top", "observation.images.top_is_pad", "observation.state", "action_is_pad_too",
                                           "action_is_pad_too_is_pad", "index"}));
  EXPECT_EQ(keys.size(), old_layout.fields.size());
  const Sample sample(layout, *after->open_reader(new_request), 4), same(old_layout, *before->open_reader(old_request), 4);
  EXPECT_EQ(sample.get<uint8_t>("observation.images.top"), same.get<uint8_t>("observation.image"));
  EXPECT_EQ(sample.get<float>("action_is_pad_too"), same.get<float>("action"));
  EXPECT_EQ(sample.get<uint8_t>("action_is_pad_too_is_pad"), same.get<uint8_t>("action_is_pad"));
  EXPECT_TRUE(after->stats().contains("observation.images.top"));
  EXPECT_FALSE(after->stats().contains("observation.image"));
  EXPECT_EQ(after->size(), before->size());
}

TEST(RenamedDataset, NamesCanBeSwapped) {
  const auto swapped = renamed({"observation.state=action", "action=observation.state"});
  const SampleRequest request = {{"action", {}}};
  EXPECT_EQ(swapped->layout(request).fields[0].shape, std::vector<int64_t>{3});
}

TEST(RenamedDataset, AnEmptyMapIsTheDatasetItself) {
  const auto dataset = original();
  EXPECT_EQ(rename_features(dataset, {}), dataset);
}

TEST(RenamedDataset, WrongNamesAreErrorsThatNameBothSides) {
  const auto error = [](const std::vector<std::string>& map) { return message_of<cxxrun::UsageError>([&] { renamed(map); }); };
  EXPECT_THAT(error({"observation.imge=x"}), AllOf(HasSubstr("'observation.imge'"), HasSubstr("observation.state"), HasSubstr("did you mean 'observation.image'")));
  EXPECT_THAT(error({"action"}), HasSubstr("dataset_key=policy_key"));
  EXPECT_THAT(error({"=x"}), HasSubstr("dataset_key=policy_key"));
  EXPECT_THAT(error({"action=a", "action=b"}), HasSubstr("'action' is renamed twice"));
  EXPECT_THAT(error({"action=observation.state"}), AllOf(HasSubstr("'observation.state'"), HasSubstr("would both be")));
}

TEST(RequireFeatures, ListsBothSidesAndSuggestsAMap) {
  EXPECT_NO_THROW(require_features(*original(), {"observation.state", "action"}));
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { require_features(*original(), {"observation.images.top", "observation.state", "action"}); }),
              AllOf(HasSubstr("lacks: observation.images.top"), HasSubstr("observation.image,"),
                    HasSubstr("--policy.rename_map='[observation.image=observation.images.top]'")));
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { require_features(*original(), {"observation.environment_state"}); }),
              HasSubstr("observation.state=observation.environment_state"));
}

}  // namespace
}  // namespace vla::data
