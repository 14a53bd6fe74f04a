#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/policies/nn/skip_init.hpp"

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

}  // namespace
}  // namespace vla
