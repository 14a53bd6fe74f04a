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
  // CXXRUN_TEST_DEVICE=cuda: the same tests with NCCL.
  static const auto env = cxxrun::WorkerEnv::read();
  static const cxxrun::World world(env, cxxrun::choose_device(cxxrun::environment_variable("CXXRUN_TEST_DEVICE").value_or("cpu"), env),
                                   {.timeout = std::chrono::seconds(30)});
  return world;
}

struct StepAgreementRanks : testing::Test {
  const cxxrun::World& world = the_world();
  ShutdownWatcher shutdown{-1};
  StepAgreement agreement{world, shutdown};

  torch::Tensor exchange(double count) { return agreement.exchange(torch::tensor({count}, torch::dtype(torch::kDouble).device(world.device()))); }
  torch::Tensor scalar(double value) { return torch::tensor(value, torch::device(world.device())); }
};

TEST_F(StepAgreementRanks, SumsTheCounts) {
  const double ranks = static_cast<double>(world.size());
  EXPECT_EQ(exchange(static_cast<double>(world.rank()) + 1).item<double>(), ranks * (ranks + 1) / 2);
  EXPECT_FALSE(agreement.requests().non_finite);
}

TEST_F(StepAgreementRanks, EveryRankLearnsWhoseLossWasNotFiniteAndOnlyOnce) {
  const auto last = world.size() - 1;
  agreement.set_step(7);
  agreement.note(scalar(world.rank() == last ? NAN : 1.0), scalar(NAN));
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
  agreement.set_step(3);
  agreement.note(scalar(1.0), scalar(INFINITY));
  const auto requests = agreement.settle();
  ASSERT_TRUE(requests.non_finite);
  EXPECT_EQ(requests.non_finite->step, 3);
  EXPECT_THAT(requests.non_finite->ranks, IsEmpty());
  EXPECT_FALSE(agreement.settle().non_finite);
}

TEST_F(StepAgreementRanks, SettlingKeepsWhatTheExchangeBeforeFound) {
  agreement.set_step(4);
  agreement.note(scalar(NAN), scalar(NAN));
  exchange(1);
  agreement.set_step(5);
  agreement.note(scalar(1.0), scalar(1.0));
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
