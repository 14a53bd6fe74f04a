#include <sched.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/random_init.hpp"
#include "worker/policies/nn/unet1d.hpp"

namespace vla {
namespace {

TEST(SkipRandomInit, LeavesWhatWouldBeDrawnAndNothingElse) {
  const auto uniform = torch::full({3}, 7.0), normal = torch::full({3}, 7.0), filled = torch::full({3}, 7.0);
  {
    const SkipRandomInit skip;
    torch::nn::init::uniform_(uniform);
    torch::nn::init::normal_(normal);
    torch::nn::init::zeros_(filled);
    const torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({4}));
    EXPECT_TRUE(norm->weight.equal(torch::ones({4})));
  }
  EXPECT_TRUE(uniform.equal(torch::full({3}, 7.0)));
  EXPECT_TRUE(normal.equal(torch::full({3}, 7.0)));
  EXPECT_TRUE(filled.equal(torch::zeros({3})));
}

TEST(SkipRandomInit, EndsWithItsScopeAndDrawsNoNumbers) {
  torch::manual_seed(3);
  const auto expected = torch::randn({4});
  torch::manual_seed(3);
  {
    const SkipRandomInit skip;
    torch::nn::Linear(8, 8);
  }
  const auto drawn = torch::empty({4}).normal_();
  EXPECT_TRUE(drawn.equal(expected));
}

constexpr int64_t kManyElements = 3'000'001;  // several pieces and a rest

at::Tensor drawn_in_parallel(int64_t seed) {
  torch::manual_seed(seed);
  const auto values = torch::full({kManyElements}, 7.0);
  {
    const ParallelRandomInit parallel;
    values.uniform_(5, 6);
    values.normal_(1, 2);
    EXPECT_TRUE(values.equal(torch::full({kManyElements}, 7.0)));
  }
  return values;
}

TEST(ParallelRandomInit, DrawsLargeTensorsAtTheEndByTheLastCall) {
  const auto values = drawn_in_parallel(3);
  EXPECT_NEAR(values.mean().item<double>(), 1, 0.01);
  EXPECT_NEAR(values.std().item<double>(), 2, 0.01);
  EXPECT_FALSE(values.equal(drawn_in_parallel(4)));
  // No piece repeats another.
  EXPECT_GT(std::get<0>(at::_unique(values.slice(0, 0, kManyElements, 1000))).numel(), kManyElements / 1000 - 5);
  const auto uniform = torch::zeros({kManyElements});
  {
    const ParallelRandomInit parallel;
    uniform.uniform_(5, 6);
  }
  EXPECT_GE(uniform.min().item<double>(), 5);
  EXPECT_LE(uniform.max().item<double>(), 6);
  EXPECT_NEAR(uniform.mean().item<double>(), 5.5, 0.01);
}

// Fast mode lays the weights of convolutions out anew, which must not come before they are drawn.
TEST(ParallelRandomInit, ALargeUnetHasTheSameWeightsInBothModes) {
  const auto weights_of = [](bool fast) {
    const FastModeScope mode(fast);
    torch::manual_seed(3);
    return Unet1d({.channels = 2, .condition_dim = 4, .down_dims = {256, 1024}, .step_embed_dim = 8}).parameters();
  };
  const auto fast = weights_of(true), reference = weights_of(false);
  ASSERT_EQ(fast.size(), reference.size());
  for (size_t i = 0; i < fast.size(); ++i) EXPECT_TRUE(fast[i].equal(reference[i])) << i << ' ' << fast[i].sizes();
}

TEST(ParallelRandomInit, ValuesDoNotDependOnTheNumberOfCores) {
  const auto on_all = drawn_in_parallel(3);
  cpu_set_t all, first;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&first);
  for (int cpu = 0; CPU_COUNT(&first) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &first);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof first, &first), 0);
  EXPECT_TRUE(drawn_in_parallel(3).equal(on_all));
  ::sched_setaffinity(0, sizeof all, &all);
}

TEST(ParallelRandomInit, LeavesSmallTensorsAndOtherScopesAlone) {
  torch::manual_seed(3);
  const auto expected = torch::randn({1000});
  torch::manual_seed(3);
  const auto large = torch::full({kManyElements}, 7.0);
  {
    const ParallelRandomInit parallel;
    EXPECT_TRUE(torch::empty({1000}).normal_().equal(expected));
    const SkipRandomInit skip;
    large.normal_();
  }
  {
    const SkipRandomInit skip;
    const ParallelRandomInit inner;
    large.normal_();
  }
  EXPECT_TRUE(large.equal(torch::full({kManyElements}, 7.0)));
}

}  // namespace
}  // namespace vla
