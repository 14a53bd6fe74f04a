// What ranks tell each other about a step. Runs as every rank of a job.
#include <csignal>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "worker/step_agreement.hpp"

namespace vla {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const cxxrun::World& the_world() {
  static const cxxrun::World world(cxxrun::WorkerEnv::read(), at::kCPU, {.timeout = std::chrono::seconds(30)});
  return world;
}

struct StepAgreementRanks : testing::Test {
  const cxxrun::World& world = the_world();
  ShutdownWatcher shutdown{-1};
  StepAgreement agreement{world, shutdown};

  torch::Tensor exchange(double count) { return agreement.exchange(torch::tensor({count}, torch::kDouble)); }
};

TEST_F(StepAgreementRanks, SumsTheCounts) {
  const double ranks = static_cast<double>(world.size());
  EXPECT_EQ(exchange(static_cast<double>(world.rank()) + 1).item<double>(), ranks * (ranks + 1) / 2);
  EXPECT_FALSE(agreement.requests().non_finite);
}

TEST_F(StepAgreementRanks, EveryRankLearnsWhoseLossWasNotFiniteAndOnlyOnce) {
  const auto last = world.size() - 1;
  agreement.note(7, torch::tensor(world.rank() == last ? NAN : 1.0), torch::tensor(NAN));
  exchange(1);
  const auto requests = agreement.requests();
  ASSERT_TRUE(requests.non_finite);
  EXPECT_EQ(requests.non_finite->step, 7);
  EXPECT_THAT(requests.non_finite->ranks, ElementsAre(last));
  EXPECT_FALSE(agreement.requests().non_finite);
  exchange(1);
  EXPECT_FALSE(agreement.requests().non_finite);
}

TEST_F(StepAgreementRanks, AnInfiniteGradientOfFiniteLossesNamesNoRank) {
  agreement.note(3, torch::tensor(1.0), torch::tensor(INFINITY));
  const auto requests = agreement.settle();
  ASSERT_TRUE(requests.non_finite);
  EXPECT_EQ(requests.non_finite->step, 3);
  EXPECT_THAT(requests.non_finite->ranks, IsEmpty());
  EXPECT_FALSE(agreement.settle().non_finite);
}

TEST_F(StepAgreementRanks, SettlingKeepsWhatTheExchangeBeforeFound) {
  agreement.note(4, torch::tensor(NAN), torch::tensor(NAN));
  exchange(1);
  agreement.note(5, torch::tensor(1.0), torch::tensor(1.0));
  const auto requests = agreement.settle();
  ASSERT_TRUE(requests.non_finite);
  EXPECT_EQ(requests.non_finite->step, 4);
}

TEST_F(StepAgreementRanks, ASignalToOneRankReachesAll) {
  if (world.is_main()) {
    ::kill(::getpid(), SIGTERM);
    while (shutdown.stop_signal() == 0) std::this_thread::yield();
  }
  EXPECT_TRUE(agreement.settle().stop);
}

}  // namespace
}  // namespace vla
