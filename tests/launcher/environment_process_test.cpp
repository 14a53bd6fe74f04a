// What ranks see: environment, arguments, descriptors, signals, their standard streams.
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

using testing::count;
using testing::cxxrun_path;
using ::testing::HasSubstr;
using testing::Launched;
using testing::program_path;
using testing::shell_ranks;

// "rank name value" lines of `sh -c 'echo …'`.
std::map<std::string, std::string> environment_of(int rank, const std::string& out) {
  std::map<std::string, std::string> variables;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const std::string prefix = fmt::format("{}:", rank);
    const size_t equals = line.find('=');
    if (line.starts_with(prefix) && equals != line.npos)
      variables[line.substr(prefix.size(), equals - prefix.size())] = line.substr(equals + 1);
  }
  return variables;
}

const char* kPrintEnvironment = "env | sed \"s/^/$RANK:/\"";

TEST(RankEnvironment, HasAllOfTorchrunsVariables) {
  Launched job(shell_ranks(3, kPrintEnvironment, {"--rdzv-id=job", "--role=trainer", "--max-restarts=2"}),
               {.environment = {"OMP_NUM_THREADS", "KEPT=yes"}});
  ASSERT_EQ(job.wait(), 0) << job.err();
  auto first = environment_of(0, job.out());
  for (int rank = 0; rank < 3; ++rank) {
    auto seen = environment_of(rank, job.out());
    const std::string number = std::to_string(rank);
    const std::pair<const char*, std::string> kExpected[] = {{"RANK", number},
                                                             {"LOCAL_RANK", number},
                                                             {"ROLE_RANK", number},
                                                             {"GROUP_RANK", "0"},
                                                             {"WORLD_SIZE", "3"},
                                                             {"LOCAL_WORLD_SIZE", "3"},
                                                             {"ROLE_WORLD_SIZE", "3"},
                                                             {"GROUP_WORLD_SIZE", "1"},
                                                             {"ROLE_NAME", "trainer"},
                                                             {"MASTER_ADDR", "127.0.0.1"},
                                                             {"MASTER_PORT", first["MASTER_PORT"]},
                                                             {"TORCHELASTIC_RESTART_COUNT", "0"},
                                                             {"TORCHELASTIC_MAX_RESTARTS", "2"},
                                                             {"TORCHELASTIC_RUN_ID", "job"},
                                                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                             {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                                             {"KEPT", "yes"},
                                                             {"CXXRUN_LAUNCH_TIME", first["CXXRUN_LAUNCH_TIME"]}};
    for (const auto& [name, value] : kExpected) EXPECT_EQ(seen[name], value) << name;
    EXPECT_GT(std::stoi(seen["MASTER_PORT"]), 0);
    EXPECT_GE(std::stoi(seen["OMP_NUM_THREADS"]), 1);
    EXPECT_THAT(seen["TORCHELASTIC_ERROR_FILE"], HasSubstr("/attempt_0/" + number + "/error.json"));
  }
}

TEST(RankEnvironment, JobsAtTheSameTimeHaveDifferentPorts) {
  const TempDir folder;
  const std::string go = (folder.path() / "go").string();
  std::vector<std::unique_ptr<Launched>> jobs;
  for (int i = 0; i < 5; ++i)
    jobs.push_back(std::make_unique<Launched>(
        shell_ranks(1, "echo port $MASTER_PORT; while [ ! -e " + go + " ]; do sleep 0.02; done")));
  for (const auto& job : jobs) EXPECT_TRUE(job->waits_for("port"));
  std::ofstream(go) << "go";
  std::map<std::string, int> ports;
  for (const auto& job : jobs) {
    EXPECT_EQ(job->wait(), 0) << job->err();
    ++ports[job->out()];
  }
  EXPECT_EQ(ports.size(), jobs.size());
}

TEST(RankEnvironment, ArgumentsArriveByteForByteWithMacrosReplaced) {
  Launched job({cxxrun_path(), "--no-python", "--nproc-per-node=2", "printf", "<%s>\n", "", "a  b",
                "--nproc-per-node=3", "\xff", "${local_rank}", "it's", "*"});
  ASSERT_EQ(job.wait(), 0) << job.err();
  for (const char* rank : {"0", "1"})
    EXPECT_THAT(job.out(),
                HasSubstr(fmt::format("<>\n<a  b>\n<--nproc-per-node=3>\n<\xff>\n<{}>\n<it's>\n<*>\n", rank)));
}

TEST(RankEnvironment, OnlyStandardStreamsAndTheControlSocketAreInherited) {
  Launched job({cxxrun_path(), "--no-python", "--nproc-per-node=3", "ls", "-v", "/proc/self/fd"});
  ASSERT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.out(), "0\n1\n2\n3\n"), 3U) << "3 is what ls reads the folder with: " << job.out();
  EXPECT_EQ(count(job.out(), "\n"), 3U * 5) << job.out();
}

TEST(RankEnvironment, EachRankHasASessionOfItsOwnAndNoBlockedSignals) {
  Launched job(shell_ranks(2, "cut -d' ' -f1,5,6 /proc/$$/stat; grep -E 'Sig(Blk|Ign)' /proc/self/status"));
  ASSERT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.out(), "SigBlk:\t0000000000000000"), 2U) << job.out();
  EXPECT_EQ(count(job.out(), "SigIgn:\t0000000000000000"), 2U) << "not even SIGPIPE";
  std::istringstream lines(job.out());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    int pid = 0, group = 0, session = 0;
    if (!(numbers >> pid >> group >> session)) continue;
    EXPECT_EQ(pid, group);
    EXPECT_EQ(pid, session);
  }
}

TEST(RankEnvironment, StdinIsPassedOn) {
  Launched job(shell_ranks(1, "read line; echo got $line"), {.stdin_text = "hello\n"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "got hello\n");
}

TEST(RankEnvironment, StderrArrivesUnchanged) {
  Launched job(shell_ranks(1, "printf 'a\\377\\376\\r50%%\\rb\\n\\nno newline' >&2"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.err(), "a\xff\xfe\r50%\rb\n\nno newline");
}

TEST(RankEnvironment, StandardStreamsMayBeClosed) {
  Launched job(shell_ranks(2, "exit $((3 + LOCAL_RANK * 0))"), {.closed_fds = {0, 1, 2}});
  EXPECT_EQ(job.wait(), 3);
}

TEST(RankEnvironment, BeatsAreCountedAndPeersHearWhoFailed) {
  Launched job({cxxrun_path(), "--nproc-per-node=3", program_path("beater"), "12"});
  ASSERT_TRUE(testing::eventually([&] { return count(job.out(), "ready") == 3; }));
  job.send(SIGUSR1);
  EXPECT_EQ(job.wait(), 5);
  EXPECT_THAT(job.out(),
              ::testing::AllOf(HasSubstr("rank 0 heard peer_failed 1"), HasSubstr("rank 2 heard peer_failed 1")));
  EXPECT_THAT(job.err(), HasSubstr("last step 12: exit code 5"));
}

TEST(RankEnvironment, DryRunPrintsWhatWouldBeStartedAndStartsNothing) {
  Launched job(shell_ranks(2, "echo started >&2", {"--dry-run"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.err(), "");
  EXPECT_EQ(count(job.out(), "/bin/sh -c 'echo started >&2'"), 2U) << job.out();
}

TEST(RankEnvironment, AHundredRanksAtOnce) {
  Launched job(shell_ranks(100, "echo rank $RANK of $WORLD_SIZE; echo err >&2"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.out(), " of 100\n"), 100U);
  EXPECT_EQ(count(job.err(), "err\n"), 100U);
}

}  // namespace
}  // namespace cxxrun
