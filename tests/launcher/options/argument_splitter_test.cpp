#include "launcher/options/argument_splitter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"

namespace cxxrun {
namespace {

using Strings = std::vector<std::string>;

// "name=value …" in the order of the command line.
std::string options_of(const SplitArguments& split) {
  std::string text;
  for (const auto& [spec, value] : split.options)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", spec->name, value);
  return text;
}

struct Case {
  Strings args;
  std::string options;
  std::string program;
  Strings program_args;
};

TEST(ArgumentSplitter, FollowsTheRulesOfTorchrun) {
  const Case kCases[] = {
      {{"s.py"}, "", "s.py", {}},
      {{"--nproc-per-node=2", "s.py"}, "nproc-per-node=2", "s.py", {}},
      {{"--nproc_per_node", "2", "s.py"}, "nproc-per-node=2", "s.py", {}},
      {{"--max-r", "3", "s"}, "max-restarts=3", "s", {}},
      {{"--standa", "s"}, "standalone=1", "s", {}},
      {{"-m", "pkg.mod", "-m"}, "module=1", "pkg.mod", {"-m"}},
      {{"s", "--nproc-per-node", "3", "-h"}, "", "s", {"--nproc-per-node", "3", "-h"}},
      {{"s", "--", "x"}, "", "s", {"x"}},
      {{"--", "s", "--", "a"}, "", "s", {"--", "a"}},
      {{"s", "a", "--", "b"}, "", "s", {"a", "--", "b"}},
      {{"--max-restarts", "-1", "s"}, "max-restarts=-1", "s", {}},
      {{"--nproc-per-node=1", "--nproc-per-node=2", "s"}, "nproc-per-node=1 nproc-per-node=2", "s", {}},
      {{"--dry-run", "--agent_store=off", "s"}, "dry-run=1 agent-store=off", "s", {}},
      {{"--rdzv-id=", "s"}, "rdzv-id=", "s", {}},
      {{"s", "", "a b", "$x", "-\xff"}, "", "s", {"", "a b", "$x", "-\xff"}},
      {{"-h", "--bogus"}, "help=1", "", {}},
      {{"-"}, "", "-", {}},
      {{}, "", "", {}},
  };
  for (const Case& expected : kCases) {
    SCOPED_TRACE(::testing::PrintToString(expected.args));
    const SplitArguments split = split_arguments(expected.args);
    EXPECT_EQ(options_of(split), expected.options);
    EXPECT_EQ(split.program, expected.program);
    EXPECT_EQ(split.program_args, expected.program_args);
  }
}

TEST(ArgumentSplitter, RefusesWithTheReasonAndARemedy) {
  const std::pair<Strings, std::string> kCases[] = {
      {{"--nproc=2", "s"}, "ambiguous option: --nproc could match --nproc-per-node, --nproc_per_node"},
      {{"--r", "s"}, "ambiguous option: --r could match"},
      {{"--nproc-per-nod3=2", "s"}, "did you mean --nproc-per-node?"},
      {{"--nproc_per_gpu", "2", "s"}, "unknown option --nproc_per_gpu"},
      {{"--dry", "s"}, "unknown option --dry"},  // ours are never abbreviated
      {{"--standalone=1", "s"}, "--standalone takes no value, got '1'"},
      {{"--role"}, "--role needs a value"},
      {{"--role", "--standalone", "s"}, "--role needs a value"},
      {{"-x", "s"}, "unknown option -x"},
      {{"--numa-binding=moon", "s"}, "--numa-binding=moon must be one of node,socket,exclusive,core-complex,auto"},
  };
  for (const auto& [args, message] : kCases) {
    SCOPED_TRACE(::testing::PrintToString(args));
    EXPECT_THAT(message_of<UsageError>([&] { split_arguments(args); }), ::testing::HasSubstr(message));
  }
}

}  // namespace
}  // namespace cxxrun
