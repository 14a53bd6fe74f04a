#include "worker/policies/nn/transformer_dropout.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/support.hpp"

namespace vla {
namespace {

constexpr uint32_t kMaskStream = 17;

struct Tokens : testing::Test {
  at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes, at::TensorOptions(at::kDouble).device(test_device())).requires_grad_(); }

  void expect_same(const at::Tensor& actual, const at::Tensor& expected, const std::vector<at::Tensor>& inputs) {
    EXPECT_LE(relative_error(actual, expected), 1e-14);
    const at::Tensor gradient = torch::randn({7, 3, 24}, expected.options()).transpose(0, 1);  // not contiguous
    const auto is = torch::autograd::grad({actual}, inputs, {gradient});
    const auto should = torch::autograd::grad({expected}, inputs, {gradient});
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_LE(relative_error(is[i], should[i]), 1e-12) << i;
  }

  at::Tensor x = leaf({3, 7, 24}), y = leaf({3, 7, 24});
  at::Tensor step = torch::full({}, 40, at::TensorOptions(at::kLong).device(test_device()));
  StepRandom random{1ULL << 35 | 7, 12, torch::arange(100, 107, at::TensorOptions(at::kLong).device(test_device())), step};
};

TEST_F(Tokens, ReluAndDropoutAreThatOfTheirOperations) {
  expect_same(relu_dropout(x, &random, 0.3, kMaskStream), random.dropout(x.relu(), 0.3, kMaskStream, 1), {x});
  expect_same(relu_dropout(x, nullptr, 0.3, kMaskStream), x.relu(), {x});
}

TEST_F(Tokens, DropoutSumAndNormAreThatOfTheirOperations) {
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({24}));
  norm->to(test_device(), at::kDouble);
  for (auto& parameter : norm->parameters()) parameter.detach().uniform_(0.5, 1.5);
  const std::vector<at::Tensor> inputs{x, y, norm->weight, norm->bias};
  expect_same(add_dropout_norm(x, y, *norm, &random, 0.3, kMaskStream), norm->forward(x + random.dropout(y, 0.3, kMaskStream, 1)), inputs);
  expect_same(add_dropout_norm(x, y, *norm, nullptr, 0.3, kMaskStream), norm->forward(x + y), inputs);
}

TEST_F(Tokens, OfSixteenBitsAreCloseToFloat) {
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({24}));
  norm->to(test_device(), at::kBFloat16);
  const at::Tensor a = x.detach().to(at::kBFloat16), b = y.detach().to(at::kBFloat16);
  const at::Tensor expected = at::layer_norm(a.to(at::kFloat) + random.dropout(b.to(at::kFloat), 0.3, kMaskStream, 1), {24});
  EXPECT_LE(relative_error(add_dropout_norm(a, b, *norm, &random, 0.3, kMaskStream), expected), 0.01);
  EXPECT_TRUE(relu_dropout(a, &random, 0.3, kMaskStream).equal(random.dropout(a.relu(), 0.3, kMaskStream, 1)));
}

}  // namespace
}  // namespace vla
