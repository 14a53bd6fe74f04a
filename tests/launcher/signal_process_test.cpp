// Signals, as users and job schedulers send them.
#include <fcntl.h>
#include <pty.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

using testing::count;
using testing::cxxrun_path;
using testing::eventually;
using ::testing::HasSubstr;
using testing::Launched;
using testing::process_state;
using testing::program_path;
using testing::shell_ranks;

std::vector<std::string> counters(const std::string& seconds, const std::string& grace = "20") {
  return {cxxrun_path(), "--nproc-per-node=2", "--shutdown-timeout=" + grace, program_path("signal_counter"), seconds};
}

bool has(const Launched& job, const std::string& text, size_t times) {
  return eventually([&] { return count(job.out(), text) == times; });
}

TEST(Signals, StopSignalsReachEachRankExactlyOnceAndHaveTheirGrace) {
  for (const auto& [signo, name] : {std::pair(SIGTERM, "TERM=1 INT=0 HUP=0"), std::pair(SIGINT, "TERM=0 INT=1 HUP=0"),
                                    std::pair(SIGHUP, "TERM=0 INT=0 HUP=1")}) {
    Launched job(counters("0.5"));
    ASSERT_TRUE(has(job, "ready", 2));
    job.send(signo);
    EXPECT_EQ(job.wait(), 128 + signo);
    EXPECT_EQ(count(job.out(), name), 2U) << job.out();
    EXPECT_TRUE(job.leaves_nothing());
  }
}

TEST(Signals, ABroadcastToBothProcessesOfCxxrunIsOneSignal) {
  Launched job(counters("0.5"));
  ASSERT_TRUE(has(job, "ready", 2));
  ::kill(job.supervisor(), SIGTERM);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
  EXPECT_EQ(count(job.out(), "TERM=1 "), 2U) << job.out();
}

TEST(Signals, RanksThatSaveForTooLongAreKilledAndThatIsSaid) {
  Launched job(counters("100", "0.3"));
  ASSERT_TRUE(has(job, "ready", 2));
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
  EXPECT_THAT(job.err(), HasSubstr("stopped by SIGTERM from outside; 2 of 2 ranks had to be killed"));
}

TEST(Signals, ASecondOneEndsAtOnce) {
  Launched job(counters("100", "100"));
  ASSERT_TRUE(has(job, "ready", 2));
  job.send(SIGINT);
  ASSERT_TRUE(has(job, "saving", 2)) << "equal signals that are pending together are one";
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_THAT(job.err(), HasSubstr("2 of 2 ranks had to be killed"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Signals, UserSignalsPassThroughAndTheJobGoesOn) {
  Launched job(counters("0"));
  ASSERT_TRUE(has(job, "ready", 2));
  job.send(SIGUSR1);
  ASSERT_TRUE(has(job, "usr 1\n", 2));
  job.send(SIGUSR2);
  ASSERT_TRUE(has(job, "usr 2\n", 2));
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
  EXPECT_EQ(count(job.out(), "USR1=1 USR2=1"), 2U) << job.out();
}

TEST(Signals, AnIgnoredHangUpStaysIgnoredHereAndInTheRanks) {
  Launched job(shell_ranks(2, "grep SigIgn /proc/self/status; echo ready; sleep 0.3; echo finished"),
               {.ignored_signals = {SIGHUP}});
  ASSERT_TRUE(has(job, "ready", 2));
  job.send(SIGHUP);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(count(job.out(), "finished"), 2U);
  EXPECT_EQ(count(job.out(), "SigIgn:\t0000000000000001"), 2U) << job.out();
}

TEST(Signals, StopAndContinueSuspendAndResumeTheJob) {
  Launched job(counters("0"));
  ASSERT_TRUE(has(job, "ready", 2));
  std::vector<pid_t> ranks;
  for (const pid_t pid : job.marked()) {
    if (testing::parent_of(pid) == job.supervisor()) ranks.push_back(pid);
  }
  ASSERT_EQ(ranks.size(), 2U);
  job.send(SIGTSTP);
  for (const pid_t pid : {ranks[0], ranks[1], job.pid()})
    EXPECT_TRUE(eventually([&] { return process_state(pid) == 'T'; })) << pid;
  job.send(SIGCONT);
  for (const pid_t pid : {ranks[0], ranks[1], job.pid()})
    EXPECT_TRUE(eventually([&] { return process_state(pid) != 'T'; })) << pid;
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
}

TEST(Signals, ASignalBeforeTheOtherNodesHaveComeEndsTheWait) {
  Launched job(
      shell_ranks(1, "echo started", {"--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", "--master-port=1"}));
  ASSERT_GT(job.supervisor(), 0);
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 130) << job.err();
  EXPECT_EQ(job.out(), "");
}

TEST(Signals, ASignalWhileTheHostOfTheMeetingWaitsEndsTheWait) {
  Launched job(shell_ranks(1, "echo started", {"--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=" +
                                               std::to_string(30'000 + ::getpid() % 2'000)}));
  ASSERT_GT(job.supervisor(), 0);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 143) << job.err();
  EXPECT_EQ(job.out(), "");
}

TEST(Signals, NoneOfThemLeavesZombies) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // they would become our children
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    // A background process of sh ignores INT and QUIT: it is what the rank leaves behind.
    Launched job(shell_ranks(2, "sleep 1000 & echo ready; exec sleep 1000"));
    ASSERT_TRUE(has(job, "ready", 2));
    job.send(signo);
    EXPECT_EQ(job.wait(), 128 + signo);
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child, alive or not, is left after signal " << signo;
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Signals, WheneverInTheStartTheyComeTheyEndTheJobOnce) {
  for (int milliseconds = 0; milliseconds < 16; milliseconds += 2) {
    Launched job(counters("0"));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    job.send(SIGTERM);
    EXPECT_EQ(job.wait(), 143) << milliseconds << " ms " << job.err();
    EXPECT_EQ(count(job.out(), "TERM=2"), 0U) << milliseconds << " ms";
    EXPECT_TRUE(job.leaves_nothing()) << milliseconds << " ms";
  }
}

TEST(Signals, AReaderThatDoesNotReadStderrDoesNotStopThem) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  Launched job(shell_ranks(2, "echo ready; while :; do echo 0123456789012345678901234567890123456789 >&2; done",
                           {"--shutdown-timeout=1"}),
               {.stderr_fd = writer.get()});
  ASSERT_TRUE(has(job, "ready", 2));
  // Wait until everything is full: the ranks sleep in their writes.
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
  EXPECT_TRUE(job.leaves_nothing());
}

// Ctrl-C at a terminal: the kernel signals the whole foreground group.
TEST(Signals, CtrlCInATerminalIsOneSignal) {
  int terminal = -1;
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid == 0) {
    const std::vector<std::string> command = counters("0.3");
    std::vector<char*> argv;
    for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(98);
  }
  const UniqueFd owner(terminal);
  ::fcntl(terminal, F_SETFL, O_NONBLOCK);
  std::string output;
  const auto shows = [&](const std::string& text, size_t times) {
    return eventually([&] {
      char buffer[4096];
      const ssize_t size = ::read(terminal, buffer, sizeof buffer);
      if (size > 0) output.append(buffer, static_cast<size_t>(size));
      return count(output, text) >= times;
    });
  };
  ASSERT_TRUE(shows("ready", 2)) << output;
  ASSERT_EQ(::write(terminal, "\x03", 1), 1);
  EXPECT_TRUE(shows("INT=1 ", 2)) << output;
  EXPECT_TRUE(shows("stopped by SIGINT from outside", 1)) << output;
  int status = 0;
  ASSERT_TRUE(eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

}  // namespace
}  // namespace cxxrun
