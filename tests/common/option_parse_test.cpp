#include "common/option_parse.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "common/worker_env.hpp"
#include "tests/common/sample_options.hpp"
#include "tests/support/message_of.hpp"

namespace cxxrun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Setting> parse(const std::vector<std::string>& arguments) {
  return parse_command_line(arguments, [](std::string_view name) { return name == "training.shuffle"; });
}

std::string error_of(const std::vector<std::string>& arguments) {
  return message_of<UsageError>([&] { Sample().apply(parse(arguments)); });
}

TEST(CommandLine, EverySpellingSetsTheSameOption) {
  const std::vector<std::vector<std::string>> spellings = {
      {"--training.batch_size=32"}, {"--training.batch_size", "32"}, {"training.batch_size=32"},
      {"+training.batch_size=32"},  {"--training.batch-size=32"},    {"++training.batch_size=32"},
      {"--training.batch_size=+32"}};
  for (const auto& spelling : spellings) {
    Sample sample;
    sample.apply(parse(spelling));
    EXPECT_EQ(sample.options.training.batch_size, 32) << spelling[0];
  }
}

TEST(CommandLine, ABareFlagIsTrueAndLeavesTheNextArgumentAlone) {
  Sample sample;
  sample.options.training.shuffle = false;
  sample.apply(parse({"--training.shuffle", "name=x"}));
  EXPECT_TRUE(sample.options.training.shuffle);
  EXPECT_EQ(sample.options.name, "x");
}

TEST(CommandLine, AFlagTakesABooleanWordAsItsValue) {
  for (const char* word : {"false", "False", "no", "off", "0"}) {
    Sample sample;
    sample.apply(parse({"--training.shuffle", word}));
    EXPECT_FALSE(sample.options.training.shuffle) << word;
  }
}

TEST(CommandLine, TheLastOfTwoEqualOptionsWins) {
  Sample sample;
  sample.apply(parse({"--name=a", "--name=b"}));
  EXPECT_EQ(sample.options.name, "b");
}

TEST(CommandLine, KeepsValuesByteForByte) {
  for (const std::string value : {"a=b", "a: b", " x ", "#1", "[x]", "'q'", "-1", ""}) {
    Sample sample;
    sample.apply(parse({"--name=" + value}));
    EXPECT_EQ(sample.options.name, value);
  }
}

TEST(CommandLine, ANegativeNumberIsAValue) {
  Sample sample;
  sample.apply(parse({"--betas", "-1.5"}));
  EXPECT_THAT(sample.options.betas, ElementsAre(-1.5));
}

TEST(CommandLine, ReadsLists) {
  Sample sample;
  sample.apply(parse({"--episodes=[0, 2,5]", "--betas=[1e-3]", "--tags=[a, 'b, c']"}));
  EXPECT_THAT(sample.options.episodes, ElementsAre(0, 2, 5));
  EXPECT_THAT(sample.options.betas, ElementsAre(1e-3));
  EXPECT_THAT(sample.options.tags, ElementsAre("a", "b, c"));
  sample.apply(parse({"--episodes=[]", "--tags", "null"}));
  EXPECT_TRUE(sample.options.episodes.empty());
  EXPECT_TRUE(sample.options.tags.empty());
}

TEST(CommandLine, RefusesWhatIsNoOption) {
  EXPECT_THAT(error_of({"train.yaml"}), HasSubstr("unexpected argument 'train.yaml'"));
  EXPECT_THAT(error_of({"--=3"}), HasSubstr("unexpected argument '--=3'"));
  EXPECT_THAT(error_of({"--"}), HasSubstr("unexpected argument '--'"));
  EXPECT_THAT(error_of({"-x"}), HasSubstr("unexpected argument '-x'"));
  EXPECT_THAT(error_of({"a b=1"}), HasSubstr("unexpected argument 'a b=1'"));
}

TEST(CommandLine, AnOptionWithoutItsValueSaysSo) {
  EXPECT_EQ(error_of({"--training.batch_size"}),
            "command line: --training.batch_size needs a value: --training.batch_size=VALUE");
  EXPECT_THAT(error_of({"--episodes", "--name=x"}), HasSubstr("--episodes needs a value"));
}

TEST(ApplySetting, AnUnknownNameNamesTheNearest) {
  EXPECT_EQ(error_of({"--training.batchsize=3"}),
            "command line: unknown key 'training.batchsize'; did you mean 'training.batch_size'?");
  EXPECT_EQ(error_of({"--qwertyuiop=3"}), "command line: unknown key 'qwertyuiop'");
  EXPECT_EQ(error_of({"--name.first=3"}), "command line: unknown key 'name.first': 'name' is an option, not a section");
  Sample sample;
  const std::string message = message_of<UsageError>(
      [&] { apply_setting(sample.table, {.name = "setps", .items = {"3"}, .source = "x"}, {"steps"}); });
  EXPECT_THAT(message, HasSubstr("did you mean 'steps'?"));
}

TEST(ApplySetting, AWrongValueNamesWhatIsExpected) {
  EXPECT_EQ(error_of({"--training.batch_size=many"}),
            "command line: training.batch_size='many': expected an integer from 1 to 1024");
  EXPECT_EQ(error_of({"--training.batch_size=0"}),
            "command line: training.batch_size='0': expected an integer from 1 to 1024");
  EXPECT_THAT(error_of({"--training.batch_size=2.5"}), HasSubstr("expected an integer from 1 to 1024"));
  EXPECT_THAT(error_of({"--training.batch_size=9223372036854775808"}), HasSubstr("expected an integer"));
  EXPECT_THAT(error_of({"--training.batch_size=1x"}), HasSubstr("expected an integer"));
  EXPECT_THAT(error_of({"--training.batch_size="}), HasSubstr("expected an integer"));
  EXPECT_EQ(error_of({"--training.lr=-1"}), "command line: training.lr='-1': expected a number of at least 0");
  EXPECT_EQ(error_of({"--betas=[0.5, 2]"}), "command line: betas='2': expected a number of at most 1");
  EXPECT_THAT(error_of({"--training.lr=nan"}), HasSubstr("expected a number"));
  EXPECT_THAT(error_of({"--training.lr=inf"}), HasSubstr("expected a number"));
  EXPECT_EQ(error_of({"--training.num_workers=-2"}),
            "command line: training.num_workers='-2': expected an integer of at least 0 or auto");
  EXPECT_EQ(error_of({"--training.shuffle=maybe"}), "command line: training.shuffle='maybe': expected true or false");
  EXPECT_EQ(error_of({"--device=cdua"}),
            "command line: device='cdua': expected one of auto, cpu, cuda; did you mean 'cuda'?");
  EXPECT_THAT(error_of({"--episodes=0,1"}), HasSubstr("episodes='0,1': expected an integer"));
  EXPECT_THAT(error_of({"--episodes=[0, [1]]"}), HasSubstr("must be a list of plain values"));
  EXPECT_THAT(error_of({"--episodes=[0"}), HasSubstr("not valid YAML"));
}

TEST(ApplySetting, ARefusedListLeavesTheOptionAsItWas) {
  Sample sample;
  EXPECT_THROW(sample.apply(parse({"--betas=[0.5, x]"})), UsageError);
  EXPECT_THAT(sample.options.betas, ElementsAre(0.9, 0.999));
}

TEST(ApplySetting, WholeNumbersMayBeWrittenWithAnExponent) {
  Sample sample;
  sample.apply(parse({"--training.batch_size=1e3"}));
  EXPECT_EQ(sample.options.training.batch_size, 1000);
}

TEST(ApplySetting, AWordStandsForItsNumber) {
  Sample sample;
  sample.options.training.num_workers = 3;
  sample.apply(parse({"--training.num_workers=auto"}));
  EXPECT_EQ(sample.options.training.num_workers, -1);
}

TEST(ApplySetting, PathsBecomeAbsoluteButWordsAndSchemesStay) {
  const auto apply = [](const std::string& text, const std::filesystem::path& directory) {
    Sample sample;
    apply_setting(sample.table, {.name = "weights", .items = {text}, .source = "test", .directory = directory});
    return sample.options.weights;
  };
  EXPECT_EQ(apply("w.safetensors", "/data/configs"), "/data/configs/w.safetensors");
  EXPECT_EQ(apply("../w", "/data/configs"), "/data/w");
  EXPECT_EQ(apply("/w", "/data"), "/w");
  EXPECT_EQ(apply("w", ""), (std::filesystem::current_path() / "w").string());
  const std::string home = environment_variable("HOME").value();
  EXPECT_EQ(apply("~/data", "/configs"), home + "/data");
  EXPECT_EQ(apply("path=~/a;weight=2", "/configs"), "path=" + home + "/a;weight=2");
  EXPECT_EQ(apply("~user/a", "/data"), "/data/~user/a");
  EXPECT_EQ(apply("none", "/data"), "none");
  EXPECT_EQ(apply("synthetic:frames=3", "/data"), "synthetic:frames=3");
  EXPECT_EQ(apply("a/b:c", "/data"), "/data/a/b:c");
  EXPECT_EQ(apply("", "/data"), "");
}

TEST(ApplySetting, ABareOptionMayHaveTrueAmongItsWords) {
  Sample sample;
  sample.apply(parse({"--resume"}));
  EXPECT_EQ(sample.options.resume, "true");
}

TEST(ApplySetting, RecordsWhereAValueCameFrom) {
  Sample sample;
  sample.apply(parse({"--name=x"}));
  EXPECT_EQ(sample.table.find("name")->source, "command line");
  EXPECT_EQ(sample.table.find("device")->source, "");
}

}  // namespace
}  // namespace cxxrun
