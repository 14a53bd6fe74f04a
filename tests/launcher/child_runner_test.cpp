// What every ChildRunner promises, checked for the real one and for the fake that supervisor tests rely on.
#include "launcher/child_runner.hpp"

#include <poll.h>

#include <functional>
#include <memory>

#include <gtest/gtest.h>

#include "launcher/process_runner.hpp"
#include "launcher/signal_source.hpp"
#include "tests/support/fake_supervisor_world.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

struct Subject {
  virtual ~Subject() = default;
  virtual ChildRunner& runner() = 0;
  virtual void end(int local_rank) = 0;  // makes the rank end by itself, with code 3 (or dies of the request)
};

struct FakeSubject : Subject {
  testing::FakeChildRunner fake;
  ChildRunner& runner() override { return fake; }
  void end(int local_rank) override { fake.end(local_rank, {.code = 3}); }
};

struct RealSubject : Subject {
  SignalSource signals{{SIGTERM, SIGINT, SIGHUP, SIGQUIT}};
  EventLoop loop;
  OutputOptions options;
  OutputRouter output{loop, options, "default"};
  ControlChannel guardian;
  ProcessRunner real{loop, output, guardian, "/bin/sh", signals.original_mask()};
  ChildRunner& runner() override { return real; }
  void end(int local_rank) override { ::kill(static_cast<pid_t>(real.pid(local_rank)), SIGUSR2); }
};

class ChildRunnerContract : public ::testing::TestWithParam<std::function<std::unique_ptr<Subject>()>> {
 protected:
  std::vector<RankPlan> plans() {
    std::vector<RankPlan> plans;
    for (int rank = 0; rank < 3; ++rank) {
      plans.push_back(
          {.rank = rank, .local_rank = rank, .argv = {"sh", "-c", "trap 'exit 3' USR2; while :; do sleep 0.01; done"}});
    }
    return plans;
  }
  std::vector<RankExit> exits(size_t count) {
    std::vector<RankExit> all;
    testing::eventually([&] {
      for (const RankExit& exit : runner.take_exits()) all.push_back(exit);
      return all.size() >= count;
    });
    return all;
  }

  std::unique_ptr<Subject> subject = GetParam()();
  ChildRunner& runner = subject->runner();
};

TEST_P(ChildRunnerContract, ARankThatEndsIsReportedOnceWithItsStatus) {
  runner.start(plans());
  EXPECT_TRUE(runner.anything_left());
  EXPECT_TRUE(runner.take_exits().empty());
  subject->end(1);
  const auto ended = exits(1);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].local_rank, 1);
  EXPECT_FALSE(ended[0].status.success());
  EXPECT_TRUE(runner.take_exits().empty());
  runner.signal_ranks(SIGKILL);
  exits(2);
}

TEST_P(ChildRunnerContract, SignalsReachAllRanksThatStillRun) {
  runner.start(plans());
  runner.signal_ranks(SIGKILL);
  const auto ended = exits(3);
  ASSERT_EQ(ended.size(), 3U);
  for (const RankExit& exit : ended) EXPECT_EQ(exit.status.signo, SIGKILL);
  // What they left behind may take a moment longer.
  EXPECT_TRUE(testing::eventually([&] { return runner.take_exits().empty() && !runner.anything_left(); }));
  runner.signal_ranks(SIGKILL);  // nobody
}

TEST_P(ChildRunnerContract, CanStartAgainWhenAllHaveEnded) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    runner.start(plans());
    EXPECT_GT(runner.pid(2), 0);
    runner.signal_ranks(SIGKILL);
    EXPECT_EQ(exits(3).size(), 3U);
  }
}

INSTANTIATE_TEST_SUITE_P(Fake, ChildRunnerContract, ::testing::Values([] { return std::make_unique<FakeSubject>(); }));
INSTANTIATE_TEST_SUITE_P(Real, ChildRunnerContract, ::testing::Values([] { return std::make_unique<RealSubject>(); }));

}  // namespace
}  // namespace cxxrun
