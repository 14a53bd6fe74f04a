// Nothing is left behind, whatever is killed when.
#include <unistd.h>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

using testing::count;
using testing::cxxrun_path;
using testing::eventually;
using ::testing::HasSubstr;
using testing::Launched;
using testing::program_path;
using testing::shell_ranks;

std::vector<std::string> stubborn_ranks(const std::string& code = "") {
  std::vector<std::string> command = {cxxrun_path(), "--nproc-per-node=2", "--shutdown-timeout=0.5",
                                      program_path("stubborn")};
  if (!code.empty()) command.push_back(code);
  return command;
}

bool all_ready(const Launched& job, size_t ranks) {
  return eventually([&] { return count(job.out(), "ready") == ranks; });
}

TEST(Leftovers, AreGoneWhenTheProcessThatTheUserStartedIsKilled) {
  Launched job(stubborn_ranks());
  ASSERT_TRUE(all_ready(job, 2));
  EXPECT_EQ(job.marked().size(), 2U + 2 * 3);
  job.send(SIGKILL);
  EXPECT_EQ(job.wait(), 137);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Leftovers, AreGoneWhenTheSupervisorIsKilled) {
  Launched job(stubborn_ranks());
  ASSERT_TRUE(all_ready(job, 2));
  ::kill(job.supervisor(), SIGKILL);
  EXPECT_EQ(job.wait(), 137);
  EXPECT_THAT(job.err(), HasSubstr("was ended by SIGKILL"));
  EXPECT_TRUE(job.marked().empty()) << "gone before cxxrun is";
}

TEST(Leftovers, AreGoneWheneverInTheStartTheKillComes) {
  for (int milliseconds = 0; milliseconds < 20; milliseconds += 2) {
    Launched job(shell_ranks(2, "sleep 1000 & sleep 1000"));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    job.send(SIGKILL);
    EXPECT_EQ(job.wait(), 137);
    EXPECT_TRUE(job.leaves_nothing()) << milliseconds << " ms";
  }
}

TEST(Leftovers, OfAFailedRankAreGone) {
  for (const char* rank_1 :
       {"sleep 1000 & exit 1", "(trap '' TERM; sleep 1000) & exit 1", "setsid sleep 1000 & sleep 0.1; exit 1"}) {
    Launched job(shell_ranks(2, fmt::format("if [ $RANK = 1 ]; then {}; fi; sleep 1000", rank_1)));
    EXPECT_EQ(job.wait(), 1);
    EXPECT_TRUE(job.marked().empty()) << rank_1;
  }
}

TEST(Leftovers, OfRanksThatEndedWellAreGone) {
  Launched job(stubborn_ranks("0"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(job.marked().empty());
}

TEST(Leftovers, OfEveryAttemptAreGoneBeforeTheNext) {
  Launched job({cxxrun_path(), "--nproc-per-node=1", "--max-restarts=1", "--shutdown-timeout=0.5",
                program_path("stubborn"), "4"});
  EXPECT_EQ(job.wait(), 4);
  EXPECT_EQ(count(job.out(), "ready"), 2U);
  EXPECT_TRUE(job.marked().empty());
}

TEST(Leftovers, RanksThatIgnoreEverythingAreGoneAfterAStopSignalAndTheGrace) {
  Launched job(stubborn_ranks());
  ASSERT_TRUE(all_ready(job, 2));
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
  EXPECT_THAT(job.err(), HasSubstr("stopped by SIGTERM from outside; 2 of 2 ranks had to be killed"));
  EXPECT_TRUE(job.marked().empty());
}

TEST(Leftovers, AStoppedSupervisorIsEndedByTheThirdSignal) {
  Launched job(stubborn_ranks());
  ASSERT_TRUE(all_ready(job, 2));
  ::kill(job.supervisor(), SIGSTOP);
  EXPECT_TRUE(eventually([&] {  // equal signals that are pending together are one, so three may not be enough
    job.send(SIGTERM);
    return testing::process_state(job.pid()) == 'Z';
  }));
  EXPECT_EQ(job.wait(), 137);
  EXPECT_TRUE(job.marked().empty());
}

TEST(Leftovers, ChildrenThatCxxrunDidNotCauseAreLeftAlone) {
  Launched job(
      {"sh", "-c",
       "sleep 1000 & echo bystander $!; exec " + cxxrun_path() + " --no-python --nproc-per-node=2 sleep 1000"});
  ASSERT_TRUE(job.waits_for("bystander"));
  const pid_t bystander = static_cast<pid_t>(std::stoi(job.out().substr(job.out().find(' '))));
  ASSERT_TRUE(eventually([&] { return job.marked().size() == 5; }));
  for (const pid_t pid : job.marked()) {
    if (pid != bystander && testing::parent_of(pid) == job.pid()) ::kill(pid, SIGKILL);
  }
  EXPECT_EQ(job.wait(), 137);
  EXPECT_THAT(job.marked(), ::testing::ElementsAre(bystander));
}

TEST(Leftovers, WorksAsProcessOneOfAContainer) {
  Launched permitted({"unshare", "-pf", "--mount-proc", "true"});
  if (permitted.wait() != 0) GTEST_SKIP() << "no new pid namespaces here: " << permitted.err();
  std::vector<std::string> command = {"unshare", "-pf", "--mount-proc"};
  for (const std::string& argument : shell_ranks(2,
                                                 "echo guardian $(tr '\\0' ' ' < /proc/1/cmdline | cut -c1-200); sleep "
                                                 "1000 & setsid sleep 1000 & [ $RANK = 0 ] || exit 8; sleep 1000"))
    command.push_back(argument);
  Launched failing(command);
  EXPECT_EQ(failing.wait(), 8) << failing.err();
  EXPECT_THAT(failing.out(), HasSubstr("cxxrun"));
  EXPECT_TRUE(failing.leaves_nothing());

  command = {"unshare",
             "-pf",
             "--kill-child=SIGTERM",
             "--mount-proc",
             cxxrun_path(),
             "--nproc-per-node=2",
             program_path("signal_counter"),
             "0"};
  Launched stopped(command);
  ASSERT_TRUE(all_ready(stopped, 2));
  pid_t guardian = 0;
  for (const pid_t pid : stopped.marked()) {
    if (testing::parent_of(pid) == stopped.pid()) guardian = pid;
  }
  ::kill(guardian, SIGTERM);  // process 1 has no default actions
  EXPECT_EQ(stopped.wait(), 143);
  EXPECT_EQ(count(stopped.out(), "TERM=1 "), 2U) << stopped.out();
}

}  // namespace
}  // namespace cxxrun
