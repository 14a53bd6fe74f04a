#include "launcher/failure_report.hpp"

#include <algorithm>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  job.ranks[1].message = "ValueError: boom";
  job.ranks[1].last_step = 117;
  EXPECT_EQ(format_failure_report(job),
            "cxxrun: train.py failed\n"
            "  rank 5 (local rank 1, pid 101) failed first, 2.1 s after its start, last step 117: exit code 3\n"
            "  it reports: ValueError: boom\n"
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
  };
  for (const auto& [said, remedy] : kCases) {
    JobOutcome job = job_of({.code = 1});
    job.ranks[1].last_lines = {"before", said, "after"};
    EXPECT_THAT(format_failure_report(job), HasSubstr(remedy));
    job.ranks[1].last_lines.clear();
    job.ranks[1].message = said;
    EXPECT_THAT(format_failure_report(job), HasSubstr(remedy));
  }
  EXPECT_THAT(format_failure_report(job_of({.code = 1})), Not(HasSubstr("what helps")));
}

TEST(FailureReport, StaysWithinTwentyLinesWhateverHappens) {
  JobOutcome job = job_of({.code = 1});
  for (size_t i = 0; i < kReportedStderrLines; ++i) job.ranks[1].last_lines.push_back(std::string(5000, 'x'));
  job.ranks[1].message = "CUDA out of memory\n1\n2\n3\n4\n5\n6";
  for (int rank = 7; rank < 100; ++rank)
    job.ranks.push_back({.rank = rank, .local_rank = rank - 4, .status = ExitStatus{.code = rank}});
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

}  // namespace
}  // namespace cxxrun
