#include "launcher/dry_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cxxrun {
namespace {

TEST(DryRun, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(shell_quote("plain-1.0/x"), "plain-1.0/x");
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("a b"), "'a b'");
  EXPECT_EQ(shell_quote("it's $x"), "'it'\\''s $x'");
}

TEST(DryRun, PrintsALineARankWithItsOwnArguments) {
  LaunchPlan plan{.options = {}, .program = {"/bin/prog", {"prog"}}, .local_ranks = 2, .defaults = {}};
  plan.options.program_args = {"--rank=${local_rank}", "a b"};
  const std::string text = describe_launch(plan);
  EXPECT_THAT(text, ::testing::HasSubstr("LOCAL_RANK=0 RANK=0"));
  EXPECT_THAT(text, ::testing::HasSubstr(" /bin/prog --rank=0 'a b'\n"));
  EXPECT_THAT(text, ::testing::HasSubstr(" /bin/prog --rank=1 'a b'\n"));
}

TEST(DryRun, IsJsonForPrograms) {
  LaunchPlan plan{.options = {}, .program = {"/bin/prog", {"prog"}}, .local_ranks = 2, .defaults = {}};
  plan.options.program_args = {"a b", "\xff"};
  const auto ranks = nlohmann::json::parse(describe_launch_as_json(plan)).at("ranks");
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[1].at("rank"), 1);
  EXPECT_EQ(ranks[1].at("executable"), "/bin/prog");
  EXPECT_EQ(ranks[1].at("argv"), (nlohmann::json{"prog", "a b", "\xef\xbf\xbd"}));
  EXPECT_EQ(ranks[1].at("environment").at("RANK"), "1");
}

}  // namespace
}  // namespace cxxrun
