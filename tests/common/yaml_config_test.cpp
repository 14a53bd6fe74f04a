#include "common/yaml_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "tests/common/sample_options.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temp_dir.hpp"

namespace cxxrun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::string& yaml) {
  return message_of<UsageError>([&] { Sample().apply(parse_yaml_settings(yaml, "configs/x.yaml")); });
}

TEST(YamlConfig, ReadsNestedDottedAndListedValues) {
  Sample sample;
  sample.apply(
      parse_yaml_settings("# comment\n"
                          "name: \"a: b\"\n"
                          "training:\n"
                          "  batch-size: 16\n"
                          "  lr: 1e-3\n"
                          "training.shuffle: no\n"
                          "episodes: [0, 3]\n"
                          "tags:\n"
                          "  - one\n"
                          "  - 'two words'\n",
                          "x"));
  EXPECT_EQ(sample.options.name, "a: b");
  EXPECT_EQ(sample.options.training.batch_size, 16);
  EXPECT_EQ(sample.options.training.lr, 1e-3);
  EXPECT_FALSE(sample.options.training.shuffle);
  EXPECT_THAT(sample.options.episodes, ElementsAre(0, 3));
  EXPECT_THAT(sample.options.tags, ElementsAre("one", "two words"));
}

TEST(YamlConfig, AnEmptyFileAndEmptySectionsChangeNothing) {
  for (const char* yaml : {"", "# nothing\n", "---\n", "training:\n", "training: {}\n"})
    EXPECT_NO_THROW(Sample().apply(parse_yaml_settings(yaml, "x"))) << yaml;
}

TEST(YamlConfig, NullEmptiesTextAndListsOnly) {
  Sample sample;
  sample.options.name = "x";
  sample.apply(parse_yaml_settings("name: null\nbetas: ~\n", "x"));
  EXPECT_EQ(sample.options.name, "");
  EXPECT_TRUE(sample.options.betas.empty());
  EXPECT_EQ(error_of("training:\n  lr:\n"), "configs/x.yaml:2: training.lr='': expected a value");
}

TEST(YamlConfig, AnUnknownKeyNamesLineAndNearest) {
  EXPECT_EQ(error_of("name: x\ntraining:\n  lr: 1\n  batchsize: 4\n"),
            "configs/x.yaml:4: unknown key 'training.batchsize'; did you mean 'training.batch_size'?");
}

TEST(YamlConfig, AWrongValueNamesLineKeyAndExpectation) {
  EXPECT_EQ(error_of("training:\n  batch_size: big\n"),
            "configs/x.yaml:2: training.batch_size='big': expected an integer from 1 to 1024");
  EXPECT_EQ(error_of("training:\n  batch_size: [1, 2]\n"),
            "configs/x.yaml:2: training.batch_size='[1, 2]': expected one value, not a list");
  EXPECT_THAT(error_of("training:\n  batch_size: {a: 1}\n"),
              HasSubstr("'training.batch_size' is an option, not a section"));
  EXPECT_THAT(error_of("training: 3\n"), HasSubstr("configs/x.yaml:1: unknown key 'training'"));
  EXPECT_THAT(error_of("episodes: [0, [1]]\n"),
              HasSubstr("configs/x.yaml:1: 'episodes' must be a list of plain values"));
}

TEST(YamlConfig, RefusesAKeyGivenTwice) {
  EXPECT_EQ(error_of("name: a\nname: b\n"), "configs/x.yaml:2: key 'name' is given twice");
  EXPECT_EQ(error_of("training:\n  batch_size: 1\n  batch-size: 2\n"),
            "configs/x.yaml:3: key 'training.batch-size' is given twice");
  EXPECT_THAT(error_of("training:\n  lr: 1\ntraining:\n  shuffle: no\n"),
              HasSubstr("configs/x.yaml:3: key 'training' is given twice"));
}

TEST(YamlConfig, RefusesWhatIsNoConfiguration) {
  EXPECT_THAT(error_of("- a\n- b\n"), HasSubstr("expected 'key: value' lines"));
  EXPECT_THAT(error_of("just text"), HasSubstr("expected 'key: value' lines"));
  EXPECT_THAT(error_of("name: a\n---\nname: b\n"), HasSubstr("more than one YAML document"));
  // A comma before the first value: yaml-cpp finds documents without end.
  EXPECT_THAT(error_of(",null"), HasSubstr("more than one YAML document"));
  EXPECT_THAT(error_of("name: [a\nx: y"), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of("name: a\n\tx: b\n"), HasSubstr("configs/x.yaml:2: not valid YAML"));
  EXPECT_THAT(error_of("? [a, b]\n: 1\n"), HasSubstr("configs/x.yaml:1: a key under '' is not a plain word"));
  EXPECT_THAT(error_of("name: *nowhere\n"), HasSubstr("not valid YAML"));
}

TEST(YamlConfig, AliasesStandForTheirValue) {
  Sample sample;
  sample.apply(parse_yaml_settings("name: &n act\ntags: [*n, *n]\n", "x"));
  EXPECT_THAT(sample.options.tags, ElementsAre("act", "act"));
  EXPECT_THAT(error_of("training: &t\n  lr: 1\nx:\n  <<: *t\n"),
              HasSubstr("configs/x.yaml:4: merge keys ('<<') are not supported"));
}

TEST(YamlConfig, DeepNestingIsAnErrorNotACrash) {
  std::string blocks;
  for (int i = 0; i < 40; ++i) blocks += std::string(i, ' ') + "a:\n";
  EXPECT_THAT(error_of(blocks + std::string(41, ' ') + "x: 1\n"), HasSubstr("nested more than 16 levels deep"));
  for (const char bracket : {'[', '{'})
    EXPECT_THAT(error_of("a: " + std::string(100000, bracket)), HasSubstr("configs/x.yaml:1:"));
  EXPECT_THAT(error_of("a: " + std::string(200, '[') + std::string(200, ']')),
              HasSubstr("must be a list of plain values"));
}

TEST(YamlConfig, ExpandingAliasesIsBounded) {
  std::string bomb = "a0: &a0 {x: 1, y: 2}\n";
  for (int i = 1; i < 14; ++i)
    bomb += fmt::format("a{}: &a{} {{p: *a{}, q: *a{}, r: *a{}, s: *a{}}}\n", i, i, i - 1, i - 1, i - 1, i - 1);
  EXPECT_THAT(error_of(bomb), HasSubstr("more than 10000 values, aliases included"));
  EXPECT_THAT(error_of("a: &a\n  b: *a\n"), HasSubstr("nested more than 16 levels deep"));
  EXPECT_THAT(error_of("a: [" + std::string(20000, ',') + "]"), HasSubstr("configs/x.yaml:1:"));
}

TEST(YamlConfig, RefusesAHugeFile) {
  EXPECT_THAT(error_of("name: " + std::string(1 << 20, 'x')), HasSubstr("bytes; a configuration has at most"));
}

TEST(YamlConfig, PathsAreRelativeToTheFile) {
  const TempDir folder;
  write_file_atomically(folder.path() / "x.yaml", "weights: ../w.safetensors\n");
  Sample sample;
  sample.apply(read_yaml_settings(folder.path() / "x.yaml"));
  EXPECT_EQ(sample.options.weights, (folder.path().parent_path() / "w.safetensors").string());
  EXPECT_EQ(sample.table.find("weights")->source, (folder.path() / "x.yaml").string() + ":1");
}

TEST(YamlConfig, AMissingFileIsNamed) {
  EXPECT_EQ(message_of<UsageError>([] { read_yaml_settings("/nowhere/x.yaml"); }),
            "configuration file '/nowhere/x.yaml' does not exist");
  EXPECT_THAT(message_of<UsageError>([] { read_yaml_settings("/tmp"); }), HasSubstr("is a folder"));
}

}  // namespace
}  // namespace cxxrun
