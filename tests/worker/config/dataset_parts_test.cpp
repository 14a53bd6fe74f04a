#include "worker/dataset_parts.hpp"

#include <gmock/gmock.h>

#include "common/error.hpp"
#include "common/option_parse.hpp"
#include "common/yaml_config.hpp"
#include "tests/support/message_of.hpp"

namespace vla {
namespace {

using cxxrun::message_of;
using cxxrun::UsageError;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<DatasetPart> parts(std::vector<std::string> texts) {
  DatasetOptions options;
  options.datasets = std::move(texts);
  return dataset_parts(options);
}

TEST(DatasetParts, AreWrittenAsAListOfMapsWithPathsRelativeToTheFile) {
  DatasetOptions options;
  cxxrun::OptionTable table;
  table.section("dataset", options);
  const std::string yaml = "dataset:\n  datasets:\n    - {path: a, weight: 0.5, episodes: [0, 2]}\n    - path: /b\n      weight: 2\n";
  for (const auto& setting : cxxrun::parse_yaml_settings(yaml, "c.yaml", "/configs")) cxxrun::apply_setting(table, setting);
  const auto read = dataset_parts(options);
  ASSERT_EQ(read.size(), 2);
  EXPECT_EQ(read[0].path, "/configs/a");
  EXPECT_EQ(read[0].weight, 0.5);
  EXPECT_THAT(read[0].episodes, ElementsAre(0, 2));
  EXPECT_EQ(read[1].path, "/b");
  EXPECT_EQ(read[1].weight, 2);
  EXPECT_THAT(read[1].episodes, IsEmpty());
}

TEST(DatasetParts, AreWrittenAsTextsOnTheCommandLine) {
  const auto read = parts({"/a", "path=/b;episodes=0-2+7"});
  EXPECT_EQ(read[0].path, "/a");
  EXPECT_FALSE(read[0].weight);
  EXPECT_THAT(read[1].episodes, ElementsAre(0, 1, 2, 7));
}

TEST(DatasetParts, AreFoundByNameWhereThereIsNoRoot) {
  DatasetOptions options;
  options.repo_id = PROJECT_DIR "/tests/data/metaworld_demo";
  EXPECT_EQ(dataset_parts(options).at(0).path, options.repo_id);
  options.root = "/r";
  EXPECT_EQ(dataset_parts(options).at(0).path, "/r");
  options.root.clear();
  options.repo_id = "nobody/has.this";
  EXPECT_THAT(message_of<UsageError>([&] { dataset_parts(options); }), HasSubstr("dataset.repo_id='nobody/has.this': no such dataset here"));
}

TEST(DatasetParts, SayWhatIsWrong) {
  EXPECT_THAT(message_of<UsageError>([] { parts({"path=/a;wieght=2"}); }), HasSubstr("did you mean 'weight'"));
  EXPECT_THAT(message_of<UsageError>([] { parts({"path=/a;weight=-1"}); }), HasSubstr("'-1' is not a weight"));
  EXPECT_THAT(message_of<UsageError>([] { parts({"path=/a;weight=2", "/b"}); }), HasSubstr("1 of 2 parts have a weight"));
  EXPECT_THAT(message_of<UsageError>([] { parts({"path=/a;weight=0"}); }), HasSubstr("all weights are 0"));
  EXPECT_THAT(message_of<UsageError>([] { parts({"weight=1"}); }), HasSubstr("has no path"));
  EXPECT_THAT(message_of<UsageError>([] { parts({"path=/a;episodes=x"}); }), HasSubstr("'x' is not an episode's number"));
  DatasetOptions both;
  both.root = "/r";
  both.datasets = {"/a"};
  EXPECT_THAT(message_of<UsageError>([&] { dataset_parts(both); }), HasSubstr("/r"));
}

}  // namespace
}  // namespace vla
