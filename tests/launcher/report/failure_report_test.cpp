#include "launcher/report/failure_report.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <gmock/gmock.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "launcher/report/report_json.hpp"
#include "launcher/report/torchrun_table.hpp"

namespace cxxrun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

JobOutcome job_of(ExitStatus culprit) {
  JobOutcome job{.program = "train.py", .ranks = {}, .culprit = 1};
  job.ranks.push_back(
      {.rank = 4, .local_rank = 0, .pid = 100, .status = ExitStatus{.signo = SIGTERM}, .asked_to_end = true});
  job.ranks.push_back(
      {.rank = 5, .local_rank = 1, .pid = 101, .status = culprit, .ran_for = std::chrono::milliseconds(2150)});
  job.ranks.push_back({.rank = 6,
                       .local_rank = 2,
                       .pid = 102,
                       .status = ExitStatus{.signo = SIGKILL},
                       .asked_to_end = true,
                       .killed_by_us = true});
  return job;
}

TEST(FailureReport, NamesTheCulpritItsEndAndWhatItSaid) {
  JobOutcome job = job_of({.code = 3});
  job.ranks[1].last_lines = {"Traceback", "boom"};
  job.ranks[1].error.message = "ValueError: boom";
  job.ranks[1].last_step = 117;
  EXPECT_EQ(format_failure_report(job),
            "cxxrun: train.py failed\n"
            "  rank 5 (local rank 1, pid 101) failed first, 2.1 s after its start, last step 117: exit code 3\n"
            "  error: ValueError: boom\n"
            "  last lines of its stderr:\n"
            "    | Traceback\n"
            "    | boom\n"
            "  rank 4: stopped by cxxrun\n"
            "  rank 6: killed by cxxrun: did not end in time after being asked to\n");
}

TEST(FailureReport, AKillWithAGrownOomCounterIsOutOfMemory) {
  JobOutcome job = job_of({.signo = SIGKILL});
  EXPECT_THAT(format_failure_report(job),
              AllOf(HasSubstr("signal SIGKILL (killed from outside"), Not(HasSubstr("out of memory"))));
  job.oom_kills = 1;
  EXPECT_THAT(format_failure_report(job), AllOf(HasSubstr("signal SIGKILL (killed by the kernel: out of memory)"),
                                                HasSubstr("what helps: main memory")));
  job.ranks[1].status = ExitStatus{.code = 137};  // the shell around it reports its child
  EXPECT_THAT(format_failure_report(job), HasSubstr("out of memory"));
}

TEST(FailureReport, KnownTextsGetTheirRemedy) {
  const std::pair<const char*, const char*> kCases[] = {
      {"RuntimeError: CUDA out of memory. Tried to allocate", "lower the batch size"},
      {"bind: Address already in use", "leave out --master-port"},
      {"NCCL error: unhandled system error", "NCCL_DEBUG=INFO"},
      {"x: error while loading shared libraries: liby.so", "LD_LIBRARY_PATH"},
      {"ModuleNotFoundError: No module named 'torch'", "PYTHON_EXEC"},
      {"CUDA error: invalid device ordinal", "fewer GPUs than ranks"},
      {"RuntimeError: CUDA error: out of memory", "lower the batch size"},
      {"terminate called after throwing an instance of 'std::bad_alloc'", "main memory"},
      {"open /dev/nvidia0: No such device", "--gpus or --device"},
      {"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)", "--hang-timeout"},
      {"RuntimeError: Timed out waiting 1800000ms for recv operation to complete", "--hang-timeout"},
      {"The client socket has timed out after 60000ms while trying to connect to (h, 1)", "MASTER_ADDR"},
      {"RuntimeError: [gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:1", "the rank at the other end"},
  };
  for (const auto& [said, remedy] : kCases) {
    JobOutcome job = job_of({.code = 1});
    job.ranks[1].last_lines = {"before", said, "after"};
    EXPECT_THAT(format_failure_report(job), HasSubstr(remedy));
    job.ranks[1].last_lines.clear();
    job.ranks[1].error.message = said;
    EXPECT_THAT(format_failure_report(job), HasSubstr(remedy));
  }
  EXPECT_THAT(format_failure_report(job_of({.code = 1})), Not(HasSubstr("what helps")));
  JobOutcome job = job_of({.code = 1});
  job.ranks[1].last_lines = {"node:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0"};
  EXPECT_THAT(format_failure_report(job), Not(HasSubstr("what helps"))) << "nothing of NCCL failed";
}

TEST(FailureReport, ProgramsThatCannotRunGetARemedyEvenIfTheySayNothing) {
  EXPECT_THAT(format_failure_report(job_of({.code = 126})), HasSubstr("what helps: chmod +x"));
  EXPECT_THAT(format_failure_report(job_of({.code = 127})), HasSubstr("what helps: check its spelling and PATH"));
}

TEST(FailureReport, StaysWithinTwentyLinesWhateverHappens) {
  JobOutcome job = job_of({.code = 1});
  for (size_t i = 0; i < kReportedStderrLines; ++i) job.ranks[1].last_lines.push_back(std::string(5000, 'x'));
  job.ranks[1].error.message = "CUDA out of memory\n1\n2\n3\n4\n5\n6";
  for (int rank = 7; rank < 100; ++rank)
    job.ranks.push_back({.rank = rank, .local_rank = rank - 4, .status = ExitStatus{.code = rank}});
  job.stop_signal = SIGTERM;
  job.peer_node_failed = true;
  const std::string report = format_failure_report(job);
  EXPECT_LE(std::count(report.begin(), report.end(), '\n'), 20);
  EXPECT_LT(report.size(), 5000U);
}

TEST(FailureReport, RanksThatEndedAlikeShareALine) {
  JobOutcome job = job_of({.code = 1});
  for (int rank = 7; rank < 12; ++rank)
    job.ranks.push_back({.rank = rank, .local_rank = rank - 4, .status = ExitStatus{.code = 1}});
  EXPECT_THAT(format_failure_report(job), HasSubstr("  ranks 7-11: exit code 1\n"));
  EXPECT_EQ(name_ranks({0, 2, 3, 5, 6, 7}), "ranks 0, 2, 3, 5-7");
  EXPECT_EQ(name_ranks({4}), "rank 4");
}

TEST(FailureReport, ARankThatCouldNotBeKilledIsSaidToBeThere) {
  JobOutcome job = job_of({.code = 1});
  job.ranks[2].status.reset();
  EXPECT_THAT(format_failure_report(job), HasSubstr("rank 6: could not be killed"));
}

TEST(FailureReport, OfAPythonTracebackTheLastLineIsTheError) {
  JobOutcome job = job_of({.code = 1});
  job.ranks[1].last_lines = {"warning", "[rank5]: Traceback (most recent call last):", "[rank5]:   File \"x.py\", line 1",
                             "[rank5]:     f()", "[rank5]: torch.OutOfMemoryError: CUDA out of memory", "noise: later"};
  EXPECT_THAT(format_failure_report(job), AllOf(HasSubstr("  error: torch.OutOfMemoryError: CUDA out of memory\n"),
                                                HasSubstr("lower the batch size"), HasSubstr("    | noise: later\n")));
  job.ranks[1].last_lines = {"Traceback (most recent call last):", "  File"};
  EXPECT_THAT(format_failure_report(job), Not(HasSubstr("error:")));
}

TEST(FailureReport, OfAnUncaughtCxxExceptionItsWhatIsTheErrorHoweverManyFramesFollow) {
  JobOutcome job = job_of({.signo = SIGABRT});
  job.ranks[1].last_lines = {"terminate called after throwing an instance of 'c10::Error'",
                             "  what():  Expected all tensors to be on the same device"};
  for (int i = 0; i < 50; ++i) job.ranks[1].last_lines.push_back(fmt::format("frame #{}: f()", i));
  EXPECT_THAT(format_failure_report(job), HasSubstr("  error: Expected all tensors to be on the same device\n"));
}

TEST(FailureReport, ShowsTheLastLinesOnly) {
  JobOutcome job = job_of({.code = 1});
  for (int i = 0; i < 50; ++i) job.ranks[1].last_lines.push_back(fmt::format("line {}", i));
  EXPECT_THAT(format_failure_report(job), AllOf(HasSubstr("| line 49\n"), HasSubstr("| line 42\n"), Not(HasSubstr("line 41"))));
}

TEST(FailureReport, TheCauseIsTakenFromTheErrorBeforeTheLinesAround) {
  JobOutcome job = job_of({.code = 1});
  job.ranks[1].last_lines = {"Traceback (most recent call last):", "ModuleNotFoundError: No module named 'x'",
                             "bind: Address already in use"};
  EXPECT_THAT(format_failure_report(job), HasSubstr("PYTHON_EXEC"));
}

TEST(TorchrunTable, HasItsLayout) {
  ::setenv("TZ", "UTC", 1);
  JobOutcome job = job_of({.code = 3});
  job.ranks.pop_back();
  job.ranks[0].order = 1;
  for (RankOutcome& rank : job.ranks) rank.ended_at = RankOutcome::WallTime(std::chrono::seconds(1'000'000'000));
  EXPECT_EQ(format_torchrun_table(job, "fail.py", "node"),
            "============================================================\n"
            "fail.py FAILED\n"
            "------------------------------------------------------------\n"
            "Failures:\n"
            "[1]:\n"
            "  time      : 2001-09-09_01:46:40\n"
            "  host      : node\n"
            "  rank      : 4 (local_rank: 0)\n"
            "  exitcode  : -15 (pid: 100)  (SIGTERM)\n"
            "  error_file: <N/A>\n"
            "  traceback : Signal 15 (SIGTERM) received by PID 100\n"
            "------------------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            "  time      : 2001-09-09_01:46:40\n"
            "  host      : node\n"
            "  rank      : 5 (local_rank: 1)\n"
            "  exitcode  : 3 (pid: 101) \n"
            "  error_file: <N/A>\n"
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
            "============================================================\n");
}

TEST(TorchrunTable, IsAsWideAsItsLongestLineAndSaysWhenNobodyElseFailed) {
  JobOutcome job = job_of({.code = 1});
  job.ranks = {job.ranks[1]};
  job.culprit = 0;
  job.ranks[0].error_file = "/e.json";
  job.ranks[0].error = {.message = "m", .callstack = "Traceback\n  boom", .timestamp = {}, .document = ""};
  const std::string table = format_torchrun_table(job, "a", "h");
  EXPECT_THAT(table, ::testing::StartsWith("=================================\na FAILED\n"));
  EXPECT_THAT(table, HasSubstr("Failures:\n  <NO_OTHER_FAILURES>\n----"));
  EXPECT_THAT(table, HasSubstr("  error_file: /e.json\n  traceback : Traceback\n    boom\n===="));
}

TEST(TorchrunTable, TimesComeFromErrorFilesAndAHungRankIsTheRootCauseHoweverItEnds) {
  ::setenv("TZ", "UTC", 1);
  JobOutcome job = job_of({.code = 0});
  job.ranks[1].silent_for = std::chrono::seconds(30);
  job.ranks[0].error = {.message = "m", .callstack = "", .timestamp = 1'000'000'000, .document = ""};
  const std::string table = format_torchrun_table(job, "a", "h");
  EXPECT_THAT(table, HasSubstr("  time      : 2001-09-09_01:46:40\n  host      : h\n  rank      : 4 "));
  EXPECT_THAT(table.substr(table.find("Root Cause")),
              AllOf(HasSubstr("  rank      : 5 (local_rank: 1)\n  exitcode  : 0 "), HasSubstr("traceback : Hung: no heartbeat for 30.0 s")));
}

TEST(ReportJson, HoldsWhatTheReportTellsWhateverBytesRanksWrote) {
  JobOutcome job = job_of({.code = 3});
  job.exit_code = 3;
  job.ranks[1].last_step = 117;
  job.ranks[1].last_lines = {"\xff CUDA out of memory"};
  LaunchPlan plan{.options = {}, .program = {}, .launch_time = 1'000'000'000, .defaults = {}};
  plan.options.program = "train.py";
  plan.options.program_args = {"--lr", "1"};
  plan.options.run_id = "job";
  const auto report = nlohmann::json::parse(
      format_report_json(job, plan, RankOutcome::WallTime(std::chrono::seconds(1'000'000'060))));
  EXPECT_EQ(report.at("exit_code"), 3);
  EXPECT_EQ(report.at("argv"), (nlohmann::json{"train.py", "--lr", "1"}));
  EXPECT_EQ(report.at("started"), "2001-09-09T01:46:40Z");
  EXPECT_EQ(report.at("duration_s"), 60);
  EXPECT_EQ(report.at("stop_signal"), nullptr);
  const auto& culprit = report.at("culprit");
  EXPECT_EQ(culprit.at("rank"), 5);
  EXPECT_EQ(culprit.at("exit_code"), 3);
  EXPECT_EQ(culprit.at("last_step"), 117);
  EXPECT_EQ(culprit.at("meaning"), "exit code 3");
  EXPECT_THAT(culprit.at("remedy").get<std::string>(), HasSubstr("batch size"));
  EXPECT_EQ(culprit.at("stderr_tail").size(), 1U);
  EXPECT_EQ(report.at("ranks").at(0).at("signal"), "SIGTERM");
  EXPECT_EQ(report.at("ranks").at(2).at("killed_by_cxxrun"), true);
}

TEST(ReportJson, OfAGoodJobHasNoCulprit) {
  const LaunchPlan plan{.options = {}, .program = {}, .defaults = {}};
  const JobOutcome job{.program = "x", .ranks = {{.rank = 0, .status = ExitStatus{}}}};
  const auto report = nlohmann::json::parse(format_report_json(job, plan, {}));
  EXPECT_EQ(report.at("culprit"), nullptr);
  EXPECT_EQ(report.at("ranks").at(0).at("exit_code"), 0);
}

}  // namespace
}  // namespace cxxrun
