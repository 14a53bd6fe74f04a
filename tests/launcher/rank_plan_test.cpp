#include "launcher/rank_plan.hpp"

#include <map>

#include <gtest/gtest.h>

namespace cxxrun {
namespace {

using Strings = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

LaunchPlan launch_of_two() {
  LaunchPlan launch{.options = {},
                    .program = {"/usr/bin/python3", {"/usr/bin/python3", "-u", "train.py"}},
                    .local_ranks = 2,
                    .launch_time = 1234,
                    .defaults = {{"OMP_NUM_THREADS", "4"}}};
  launch.options.run_id = "job";
  launch.options.role = "trainer";
  launch.options.max_restarts = 3;
  launch.options.program_args = {"--lr", "1e-4"};
  return launch;
}

RendezvousResult second_of_two_nodes() {
  return {.group_rank = 1,
          .group_world_size = 2,
          .base_global_rank = 3,
          .global_world_size = 5,
          .base_role_rank = 3,
          .role_world_size = 5,
          .master_addr = "10.0.0.1",
          .master_port = 29500,
          .use_agent_store = true};
}

TEST(RankPlan, GivesEachRankTheWholeEnvironmentOfTorchrun) {
  const auto plans = plan_ranks(launch_of_two(), second_of_two_nodes(), 1, "/tmp/e");
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(plans[1].rank, 4);
  EXPECT_EQ(plans[1].argv, (Strings{"/usr/bin/python3", "-u", "train.py", "--lr", "1e-4"}));
  EXPECT_EQ(Variables(plans[1].environment.begin(), plans[1].environment.end()),
            (Variables{{"LOCAL_RANK", "1"},
                       {"RANK", "4"},
                       {"GROUP_RANK", "1"},
                       {"ROLE_RANK", "4"},
                       {"ROLE_NAME", "trainer"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"WORLD_SIZE", "5"},
                       {"GROUP_WORLD_SIZE", "2"},
                       {"ROLE_WORLD_SIZE", "5"},
                       {"MASTER_ADDR", "10.0.0.1"},
                       {"MASTER_PORT", "29500"},
                       {"TORCHELASTIC_RESTART_COUNT", "1"},
                       {"TORCHELASTIC_MAX_RESTARTS", "3"},
                       {"TORCHELASTIC_RUN_ID", "job"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                       {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                       {"TORCHELASTIC_ERROR_FILE", "/tmp/e/1/error.json"},
                       {"CXXRUN_LAUNCH_TIME", "1234"},
                       {"OMP_NUM_THREADS", "4"}}));
}

TEST(RankPlan, AttemptsDifferOnlyInTheirCountAndTheirErrorFile) {
  const auto first = plan_ranks(launch_of_two(), second_of_two_nodes(), 0, "/tmp/e/0")[0];
  const auto second = plan_ranks(launch_of_two(), second_of_two_nodes(), 1, "/tmp/e/1")[0];
  Variables changed;
  for (size_t i = 0; i < first.environment.size(); ++i) {
    if (first.environment[i] != second.environment[i]) changed.insert(second.environment[i]);
  }
  EXPECT_EQ(changed,
            (Variables{{"TORCHELASTIC_RESTART_COUNT", "1"}, {"TORCHELASTIC_ERROR_FILE", "/tmp/e/1/0/error.json"}}));
}

TEST(RankPlan, MacrosAreReplacedInArgumentsButNotInTheProgram) {
  LaunchPlan launch = launch_of_two();
  launch.program = {"/bin/${local_rank}", {"${local_rank}", "script${local_rank}.py"}};
  launch.options.program_args = {"${local_rank}"};
  EXPECT_EQ(plan_ranks(launch, second_of_two_nodes(), 0, "")[1].argv, (Strings{"${local_rank}", "script1.py", "1"}));
  const std::pair<const char*, const char*> kCases[] = {
      {"${local_rank}", "7"},
      {"$local_rank", "7"},
      {"a$local_rank-b", "a7-b"},
      {"$local_ranks", "$local_ranks"},
      {"$$", "$"},
      {"$$local_rank", "$local_rank"},
      {"$x ${y} $", "$x ${y} $"},
      {"${local_rank", "${local_rank"},
      {"\xff${local_rank}",
       "\xff"
       "7"},
  };
  for (const auto& [text, result] : kCases) EXPECT_EQ(substitute_macros(text, 7), result);
}

TEST(RankPlan, ThreadsAreSharedOutUnlessTheUserSaysOtherwise) {
  const auto threads = [](int ranks, int cpus, Variables user) {
    const auto defaults = default_variables(ranks, cpus, [&](const std::string& name) {
      return user.contains(name) ? std::optional(user[name]) : std::nullopt;
    });
    Variables result(defaults.begin(), defaults.end());
    return result.contains("OMP_NUM_THREADS") ? result["OMP_NUM_THREADS"] : "unset";
  };
  EXPECT_EQ(threads(2, 8, {}), "4");
  EXPECT_EQ(threads(3, 8, {}), "2");
  EXPECT_EQ(threads(8, 2, {}), "1");
  EXPECT_EQ(threads(1, 8, {}), "8");
  EXPECT_EQ(threads(2, 8, {{"OMP_NUM_THREADS", ""}}), "unset");
}

TEST(RankPlan, NcclErrorHandlingIsOnUnlessTheUserSaysOtherwise) {
  const auto with = default_variables(1, 1, [](const std::string&) { return std::nullopt; });
  EXPECT_EQ(with.back(), (std::pair<std::string, std::string>{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}));
  EXPECT_TRUE(default_variables(1, 1, [](const std::string&) { return std::optional<std::string>("0"); }).empty());
}

TEST(RankPlan, StreamsGoWhereRedirectsTeeAndTheFilterSend) {
  LaunchPlan launch = launch_of_two();
  launch.options.output.redirects = parse_std_map("1", "-r");
  launch.options.output.tee = parse_std_map("1:3", "-t");
  const auto plans = plan_ranks(launch, second_of_two_nodes(), 0, "/l/attempt_0");
  EXPECT_EQ(plans[0].out, (StreamPlan{.console = false, .file = "/l/attempt_0/0/stdout.log"}));
  EXPECT_EQ(plans[0].err, StreamPlan{});
  EXPECT_EQ(plans[1].out, (StreamPlan{.console = true, .file = "/l/attempt_0/1/stdout.log", .teed = true}));
  EXPECT_EQ(plans[1].err, (StreamPlan{.console = true, .file = "/l/attempt_0/1/stderr.log", .teed = true}));

  launch.options.output.shown_ranks = {0};
  const auto filtered = plan_ranks(launch, second_of_two_nodes(), 0, "")[1];
  EXPECT_EQ(filtered.out, (StreamPlan{.console = false, .file = "", .teed = true})) << "no folder, no file";
  EXPECT_EQ(filtered.error_file, "");
}

TEST(RankPlan, VirtualLocalRanksSeeOneDeviceEachAndKeepTheirRealNumberInMacros) {
  LaunchPlan launch = launch_of_two();
  launch.options.virtual_local_rank = true;
  launch.devices = {"GPU-a", "GPU-b"};
  launch.options.program_args = {"${local_rank}"};
  const RankPlan second = plan_ranks(launch, second_of_two_nodes(), 0, "")[1];
  const Variables environment(second.environment.begin(), second.environment.end());
  EXPECT_EQ(environment.at("LOCAL_RANK"), "0");
  EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), "GPU-b");
  EXPECT_EQ(second.argv.back(), "1");
}

TEST(RankPlan, TheOldLauncherPutsTheLocalRankBeforeTheArguments) {
  LaunchPlan launch = launch_of_two();
  launch.options.launch_compat = true;
  EXPECT_EQ(plan_ranks(launch, second_of_two_nodes(), 0, "")[1].argv,
            (Strings{"/usr/bin/python3", "-u", "train.py", "--local-rank=1", "--lr", "1e-4"}));
}

}  // namespace
}  // namespace cxxrun
