#include "launcher/supervisor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "launcher/report/failure_report.hpp"
#include "tests/support/fake_supervisor_world.hpp"

namespace cxxrun {
namespace {

using namespace std::chrono_literals;
using testing::FakeChildRunner;
using testing::FakeClock;
using testing::FakeRendezvous;
using Manner = FakeChildRunner::Manner;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr ExitStatus kSuccess{};
constexpr ExitStatus kFailure{.code = 3};

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    plan.local_ranks = 3;
    plan.options.program = "train.py";
    plan.options.shutdown_timeout = 10s;
    clock.on_expiry = [this](Event event) {
      supervisor().on_timer(event);
      supervisor().on_children_changed();
    };
  }

  Supervisor& supervisor() {
    if (!supervisor_) {
      supervisor_ = std::make_unique<Supervisor>(
          plan, "",
          SupervisorWorld{
              .rendezvous = rendezvous, .runner = runner, .clock = clock, .log = [this](const std::string& line) {
                log.push_back(line);
              }});
    }
    return *supervisor_;
  }
  void end(int local_rank, ExitStatus status) {
    runner.end(local_rank, status);
    supervisor().on_children_changed();
  }
  void signal(int signo) {
    supervisor().on_signal(signo);
    supervisor().on_children_changed();
  }

  std::string report() { return format_failure_report(supervisor().outcome()); }

  LaunchPlan plan{.options = {}, .program = {"/bin/train", {"train"}}, .defaults = {}};
  FakeRendezvous rendezvous;
  FakeChildRunner runner;
  FakeClock clock;
  std::vector<std::string> log;

 private:
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(SupervisorTest, EndsWellWhenAllRanksDo) {
  supervisor().start();
  for (const int rank : {2, 0, 1}) end(rank, kSuccess);
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 0);
  EXPECT_EQ(report(), "");
  EXPECT_THAT(rendezvous.finishes, ElementsAre(true));
  EXPECT_THAT(runner.signals, IsEmpty());
}

TEST_F(SupervisorTest, StopsTheOthersWhenOneRankFailsAndReturnsItsCode) {
  supervisor().start();
  clock.advance(2s);
  end(1, kFailure);
  EXPECT_TRUE(supervisor().done() || supervisor().state() == State::kFailing);
  supervisor().on_children_changed();
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 3);
  EXPECT_THAT(runner.told, ElementsAre(std::pair<std::string, int64_t>("peer_failed", 1)));
  EXPECT_THAT(runner.signals, ElementsAre(SIGTERM));
  EXPECT_THAT(report(), HasSubstr("rank 1 (local rank 1, pid 1001) failed first, 2.0 s after its start"));
  EXPECT_THAT(report(), HasSubstr("ranks 0, 2: stopped by cxxrun"));
  EXPECT_THAT(rendezvous.finishes, ElementsAre(false));
}

TEST_F(SupervisorTest, KillsRanksThatOutlastTheGrace) {
  runner.manner = Manner::kStubborn;
  supervisor().start();
  end(1, {.signo = SIGSEGV});
  clock.advance(9999ms);
  EXPECT_EQ(supervisor().state(), State::kFailing);
  clock.advance(1ms);
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 128 + SIGSEGV);
  EXPECT_THAT(runner.signals, ElementsAre(SIGTERM, SIGKILL));
  EXPECT_THAT(report(), HasSubstr("ranks 0, 2: killed by cxxrun"));
}

TEST_F(SupervisorTest, GivesUpOnRanksInUninterruptibleSleep) {
  runner.manner = Manner::kUninterruptible;
  plan.options.max_restarts = 5;
  supervisor().start();
  end(1, kFailure);
  clock.advance(16s);
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 3);
  EXPECT_THAT(log, ElementsAre(HasSubstr("state D")));
  EXPECT_EQ(runner.starts.size(), 1U) << "no restart on a machine in this state";
}

TEST_F(SupervisorTest, RestartsAllRanksWhenOneFails) {
  plan.options.max_restarts = 2;
  supervisor().start();
  for (int attempt = 0; attempt < 2; ++attempt) {
    end(attempt, kFailure);
    supervisor().on_children_changed();
    EXPECT_EQ(supervisor().state(), attempt == 0 ? State::kRunning : State::kPausing);
    clock.advance(100ms);
    EXPECT_EQ(supervisor().state(), State::kRunning);
  }
  for (const int rank : {0, 1, 2}) end(rank, kSuccess);
  EXPECT_EQ(supervisor().exit_code(), 0);
  EXPECT_THAT(rendezvous.joins, ElementsAre(0, 1, 2)) << "each attempt meets anew";
  EXPECT_EQ(runner.starts.size(), 3U);
  EXPECT_THAT(log, ElementsAre(HasSubstr("rank 0 failed (exit code 3): starting all ranks again, restart 1 of 2"),
                               HasSubstr("starting all ranks again in 0.1 s, restart 2 of 2")));
}

TEST_F(SupervisorTest, FailsWhenRestartsAreUsedUp) {
  plan.options.max_restarts = 1;
  supervisor().start();
  end(0, kFailure);
  supervisor().on_children_changed();
  end(2, {.code = 9});
  supervisor().on_children_changed();
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 9);
  EXPECT_THAT(report(), HasSubstr("train.py failed 2 times"));
}

TEST_F(SupervisorTest, ForwardsAStopSignalOnceAndReturns128PlusIt) {
  runner.manner = Manner::kStubborn;
  supervisor().start();
  signal(SIGINT);
  EXPECT_THAT(runner.signals, ElementsAre(SIGINT));
  for (const int rank : {0, 1, 2}) end(rank, kSuccess);
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 130);
  EXPECT_EQ(report(), "cxxrun: stopped by SIGINT from outside\n");
}

TEST_F(SupervisorTest, KillsAtOnceOnASecondStopSignal) {
  runner.manner = Manner::kStubborn;
  supervisor().start();
  signal(SIGTERM);
  signal(SIGTERM);
  EXPECT_TRUE(supervisor().done());
  EXPECT_THAT(runner.signals, ElementsAre(SIGTERM, SIGKILL));
  EXPECT_EQ(supervisor().exit_code(), 143);
  EXPECT_THAT(report(), HasSubstr("3 of 3 ranks had to be killed"));
}

TEST_F(SupervisorTest, AStopSignalWhilePeersAreEndingIsNotForwardedAndCancelsTheRestart) {
  runner.manner = Manner::kStubborn;
  plan.options.max_restarts = 5;
  supervisor().start();
  end(0, kFailure);
  signal(SIGTERM);
  EXPECT_THAT(runner.signals, ElementsAre(SIGTERM)) << "the ranks have heard it already";
  clock.advance(10s);
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 143);
  EXPECT_EQ(runner.starts.size(), 1U);
}

TEST_F(SupervisorTest, AStopSignalWhileWaitingForOtherNodesEndsAtOnce) {
  rendezvous.everybody_comes = false;
  supervisor().start();
  EXPECT_EQ(supervisor().state(), State::kJoining);
  supervisor().on_signal(SIGINT);
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 130);
  EXPECT_THAT(runner.starts, IsEmpty());
}

TEST_F(SupervisorTest, UserSignalsPassThroughAndSuspendingStopsRanks) {
  runner.manner = Manner::kStubborn;
  supervisor().start();
  for (const int signo : {SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) signal(signo);
  EXPECT_THAT(runner.signals, ElementsAre(SIGUSR1, SIGUSR2, SIGSTOP, SIGCONT));
  EXPECT_EQ(supervisor().state(), State::kRunning);
}

TEST_F(SupervisorTest, SuspendedRanksAreWokenToHearThatTheyMustEnd) {
  runner.manner = Manner::kStubborn;
  supervisor().start();
  signal(SIGTSTP);
  signal(SIGTERM);
  EXPECT_THAT(runner.signals, ElementsAre(SIGSTOP, SIGTERM, SIGCONT));
}

TEST_F(SupervisorTest, KillsEverythingWhenTheGuardianIsLost) {
  runner.manner = Manner::kStubborn;
  supervisor().start();
  runner.leftovers = 2;
  runner.leftovers_obey = false;
  supervisor().on_guardian_lost();
  supervisor().on_children_changed();
  EXPECT_TRUE(supervisor().done());
  EXPECT_THAT(runner.signals, ElementsAre(SIGKILL));
  EXPECT_FALSE(runner.anything_left());
}

TEST_F(SupervisorTest, LeftoversGetAMomentAndAreThenKilled) {
  supervisor().start();
  runner.leftovers = 1;
  runner.leftovers_obey = false;
  for (const int rank : {0, 1, 2}) end(rank, kSuccess);
  EXPECT_EQ(supervisor().state(), State::kSweeping);
  clock.advance(1s);
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 0);
  EXPECT_FALSE(runner.anything_left());
}

TEST_F(SupervisorTest, WarnsWhenSomeRanksEndedWellLongBeforeTheOthers) {
  supervisor().start();
  end(2, kSuccess);
  clock.advance(4s);
  EXPECT_THAT(log, IsEmpty());
  clock.advance(1s);
  EXPECT_THAT(log, ElementsAre("warning: rank 2 ended with exit code 0 while ranks 0, 1 still run"));
  EXPECT_EQ(supervisor().state(), State::kRunning);
}

TEST_F(SupervisorTest, TheFirstFailureIsTheCulpritAndLaterOnesAreNot) {
  runner.manner = Manner::kStubborn;
  supervisor().start();
  end(2, kFailure);
  end(0, {.code = 1});
  end(1, {.signo = SIGABRT});
  EXPECT_EQ(supervisor().exit_code(), 3);
  EXPECT_THAT(report(), HasSubstr("rank 2 (local rank 2"));
}

TEST_F(SupervisorTest, TorchrunExitCodesAreOneForEveryFailure) {
  plan.options.torchrun_exit_codes = true;
  supervisor().start();
  end(0, kFailure);
  supervisor().on_children_changed();
  EXPECT_EQ(supervisor().exit_code(), 1);
}

TEST_F(SupervisorTest, AFailureOnAnotherNodeIsOurFailureToo) {
  rendezvous.ending = Ending::kPeerFailed;
  supervisor().start();
  for (const int rank : {0, 1, 2}) end(rank, kSuccess);
  EXPECT_EQ(supervisor().exit_code(), 1);
  EXPECT_THAT(report(), HasSubstr("ranks of another node failed"));
}

TEST_F(SupervisorTest, PausesLongerBetweenAttemptsThatFailAtOnceButNeverMoreThanASecond) {
  plan.options.max_restarts = 30;
  supervisor().start();
  for (const auto pause : {0ms, 100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms}) {
    end(0, kFailure);
    supervisor().on_children_changed();
    if (pause > 0ms) {
      clock.advance(pause - 1ms);
      EXPECT_EQ(supervisor().state(), State::kPausing) << pause.count();
      clock.advance(1ms);
    }
    EXPECT_EQ(supervisor().state(), State::kRunning) << pause.count();
  }
  clock.advance(10s);
  end(0, kFailure);
  supervisor().on_children_changed();
  EXPECT_EQ(supervisor().state(), State::kRunning) << "an attempt that ran for a while is followed at once";
}

TEST_F(SupervisorTest, AStopSignalEndsThePauseAndTheJob) {
  plan.options.max_restarts = 5;
  supervisor().start();
  for (int attempt = 0; attempt < 2; ++attempt) {
    end(0, kFailure);
    supervisor().on_children_changed();
  }
  EXPECT_EQ(supervisor().state(), State::kPausing);
  signal(SIGTERM);
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 143);
  EXPECT_EQ(runner.starts.size(), 2U);
}

class HangTest : public SupervisorTest {
 protected:
  HangTest() {
    plan.options.hang_timeout = 30s;
    supervisor().start();
  }
  void beat(int local_rank, int64_t step) { runner.beats[local_rank] = {step, clock.now()}; }
};

TEST_F(HangTest, TheRankThatCameLeastFarIsTheCulprit) {
  for (const int rank : {0, 1, 2}) beat(rank, 7);
  clock.advance(10s);
  for (const int rank : {0, 2}) beat(rank, 8);  // and then they wait for rank 1
  clock.advance(29s);
  supervisor().on_children_changed();
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 124);
  EXPECT_THAT(report(), HasSubstr("rank 1 (local rank 1, pid 1001) failed first, 30.0 s after its start, last step 7: hung: "
                                  "no heartbeat for 30.0 s"));
  EXPECT_THAT(report(), HasSubstr("ranks 0, 2: stopped by cxxrun"));
}

TEST_F(HangTest, OfRanksThatCameEquallyFarTheStoppedOneIsTheCulprit) {
  for (const int rank : {0, 1, 2}) beat(rank, 7);
  runner.stopped = {2};
  clock.advance(30s);
  supervisor().on_children_changed();
  EXPECT_THAT(report(), HasSubstr("rank 2 (local rank 2"));
  EXPECT_THAT(report(), HasSubstr("others came as far as it did"));
}

TEST_F(HangTest, IsForRanksThatHaveBeatenBefore) {
  clock.advance(300s);
  EXPECT_EQ(supervisor().state(), State::kRunning) << "a program without heartbeats does not hang";
  beat(0, 1);
  for (int i = 2; i < 10; ++i) {
    clock.advance(29s);
    EXPECT_EQ(supervisor().state(), State::kRunning);
    beat(0, i);
  }
}

TEST_F(HangTest, TimeInWhichTheJobIsSuspendedDoesNotCount) {
  runner.manner = Manner::kStubborn;
  beat(0, 1);
  clock.advance(20s);
  signal(SIGTSTP);
  clock.advance(300s);
  signal(SIGCONT);
  clock.advance(29s);
  EXPECT_EQ(supervisor().state(), State::kRunning);
  clock.advance(1s);
  EXPECT_EQ(supervisor().state(), State::kFailing);
}

TEST_F(HangTest, IsFollowedByARestartIfThereAreAny) {
  plan.options.max_restarts = 1;
  beat(2, 5);
  clock.advance(30s);
  supervisor().on_children_changed();
  EXPECT_EQ(supervisor().state(), State::kRunning);
  EXPECT_EQ(runner.starts.size(), 2U);
  EXPECT_THAT(log, ElementsAre(HasSubstr("rank 2 failed (hung: no heartbeat for 30.0 s): starting all ranks again")));
}

TEST_F(SupervisorTest, SignalsToHandleDecideWhatEndsTheJob) {
  runner.manner = Manner::kStubborn;
  plan.options.stop_signals = {SIGUSR1};
  supervisor().start();
  signal(SIGTERM);
  EXPECT_EQ(supervisor().state(), State::kRunning);
  signal(SIGUSR1);
  EXPECT_EQ(supervisor().state(), State::kStopping);
  EXPECT_THAT(runner.signals, ElementsAre(SIGTERM, SIGUSR1));
}

TEST_F(SupervisorTest, EventsAreWrittenAsTorchrunNamesThem) {
  std::vector<std::string> lines;
  EventLog events(plan, "host", [&](const std::string& line) { lines.push_back(line); });
  Supervisor logged(plan, "", {.rendezvous = rendezvous, .runner = runner, .clock = clock, .log = {}, .events = &events});
  logged.start();
  runner.end(1, kFailure);
  logged.on_children_changed();
  logged.on_children_changed();
  std::vector<std::string> seen;
  for (const std::string& line : lines) {
    const auto event = nlohmann::json::parse(line);
    const auto& metadata = event.at("metadata");
    seen.push_back(event.at("source").get<std::string>() + " " + metadata.at("state").get<std::string>() + " " +
                   metadata.at("global_rank").dump());
    EXPECT_TRUE(nlohmann::json::accept(metadata.at("metadata").get<std::string>()));
    const bool failed = seen.back() == "WORKER FAILED 1";
    EXPECT_EQ(metadata.at("raw_error"), failed ? nlohmann::json(R"({"message": "<NONE>"})") : nlohmann::json());
  }
  EXPECT_THAT(seen, ElementsAre("AGENT RENDEZVOUS null", "WORKER START 0", "WORKER START 1", "WORKER START 2",
                                "WORKER FAILED 1", "WORKER TERMINATED 0", "WORKER TERMINATED 2", "AGENT FAILED null"));
}

TEST_F(SupervisorTest, WhenTheNodesChangeAllRanksStartAgainAndNoRestartIsUsedUp) {
  plan.options.max_restarts = 0;
  supervisor().start();
  supervisor().on_interruption(Interruption::kRestart);
  supervisor().on_children_changed();
  EXPECT_EQ(supervisor().state(), State::kRunning);
  EXPECT_THAT(rendezvous.joins, ElementsAre(0, 0));
  EXPECT_EQ(runner.starts.size(), 2U);
  EXPECT_THAT(log, ElementsAre(HasSubstr("nodes of this job have changed")));
  for (const int rank : {0, 1, 2}) end(rank, kSuccess);
  EXPECT_EQ(supervisor().exit_code(), 0);
}

TEST_F(SupervisorTest, WhenAnotherNodeFailsTheRanksHereEndAtOnce) {
  supervisor().start();
  supervisor().on_interruption(Interruption::kPeerFailed);
  supervisor().on_children_changed();
  EXPECT_TRUE(supervisor().done());
  EXPECT_EQ(supervisor().exit_code(), 1);
  EXPECT_THAT(rendezvous.finishes, ElementsAre(false));
  EXPECT_THAT(report(), HasSubstr("another node"));
}

TEST_F(SupervisorTest, OtherNodesHearAtOnceOfAFailureHere) {
  plan.options.max_restarts = 1;
  runner.manner = Manner::kStubborn;
  supervisor().start();
  end(0, kFailure);
  EXPECT_THAT(rendezvous.announced, ElementsAre(true)) << "before the others have ended";
}

}  // namespace
}  // namespace cxxrun
