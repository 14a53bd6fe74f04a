#include "common/option_text.hpp"

#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/yaml_config.hpp"
#include "tests/common/sample_options.hpp"

namespace cxxrun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(DumpYaml, ReadsBackToTheSameValues) {
  const std::string texts[] = {"",          "act", "true",   "no",   "null", "~",   "12", "1e5",
                               ".inf",      " a",  "a: b",   "a #b", "[x]",  "- x", "é",  "a\"b\\c\n\t\x01",
                               "/data/x y", "'",   "{a: b}", "&a",   "*a",   "!t",  "%x", "@x",
                               "None",      "x:",  "=",      "<<"};
  for (const std::string& text : texts) {
    Sample sample;
    sample.options.name = text;
    sample.options.tags = {text, "b"};
    Sample copy;
    copy.apply(parse_yaml_settings(dump_yaml(sample.table), "dump"));
    EXPECT_EQ(copy.options.name, text);
    EXPECT_THAT(copy.options.tags, ElementsAre(text, "b"));
  }
}

TEST(DumpYaml, KeepsEveryBitOfDoubles) {
  for (const double value : {0.1, 1.0 / 3.0, 1e-5, 1e22, 5e-324, std::numeric_limits<double>::max(), 123456789.0}) {
    Sample sample, copy;
    sample.options.training.lr = value;
    copy.apply(parse_yaml_settings(dump_yaml(sample.table), "dump"));
    EXPECT_EQ(copy.options.training.lr, value);
  }
}

TEST(DumpYaml, WritesSectionsSourcesAndWords) {
  Sample sample;
  sample.options.training.lr = 1e-5;
  sample.apply(parse_yaml_settings("training:\n  batch_size: 4\nresume: x\n", "a.yaml"));
  EXPECT_EQ(dump_yaml(sample.table),
            "name: \"\"\n"
            "device: auto\n"
            "weights: none\n"
            "episodes: []\n"
            "betas: [0.9, 0.999]\n"
            "tags: []\n"
            "training:\n"
            "  batch_size: 4  # a.yaml:2\n"
            "  num_workers: auto\n"
            "  lr: 1.0e-05\n"
            "  shuffle: true\n");
}

TEST(DumpYaml, MakesOneSectionOfOptionsDeclaredApart) {
  int64_t a = 1, b = 2, c = 3;
  OptionTable table;
  table.add("policy.a", a, "");
  table.add("steps", c, "");
  table.add("policy.deep.b", b, "");
  EXPECT_EQ(dump_yaml(table), "steps: 3\npolicy:\n  a: 1\n  deep:\n    b: 2\n");
}

TEST(HelpText, MentionsEveryOptionOnceWithItsDefaultRangeAndUnit) {
  Sample sample;
  const std::string help = help_text(sample.table);
  for (const OptionRow& row : sample.table.rows()) {
    const size_t first = help.find("--" + row.name + " ");
    ASSERT_NE(first, std::string::npos) << row.name;
    EXPECT_EQ(help.find("--" + row.name + " ", first + 1), std::string::npos) << row.name;
    EXPECT_THAT(help, HasSubstr(row.help));
  }
  EXPECT_THAT(
      help,
      HasSubstr(
          "--training.batch_size N\n        Samples a step. (in samples; at least 1; at most 1024; default 8)\n"));
  EXPECT_THAT(help, HasSubstr("(auto | cpu | cuda; default auto)"));
  EXPECT_THAT(help, HasSubstr("(none | a path; default none)"));
  EXPECT_THAT(help, HasSubstr("(N or auto; at least 0; default auto)"));
  EXPECT_THAT(help, HasSubstr("--betas [X, ...]"));
}

TEST(HelpText, WrapsAtOneHundredColumns) {
  std::string text, words;
  for (int i = 0; i < 100; ++i) words += "word ";
  OptionTable table;
  table.add("x", text, words);
  std::istringstream help(help_text(table));
  size_t longest = 0;
  for (std::string line; std::getline(help, line);) longest = std::max(longest, line.size());
  EXPECT_LE(longest, 100u);
  EXPECT_GT(longest, 90u);
}

}  // namespace
}  // namespace cxxrun
