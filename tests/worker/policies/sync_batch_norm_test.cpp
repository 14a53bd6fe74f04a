#include "worker/policies/nn/sync_batch_norm.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/support.hpp"

namespace vla {
namespace {

struct Pair {
  explicit Pair(at::ScalarType dtype = at::kDouble) {
    torch::manual_seed(2);
    const torch::NoGradGuard no_grad;
    for (auto& entry : own->named_parameters()) {
      entry.value().uniform_(0.5, 1.5);
      torchs->named_parameters()[entry.key()].copy_(entry.value());
    }
    own->to(dtype);
    torchs->to(dtype);
  }

  std::shared_ptr<SyncBatchNorm2d> own = std::make_shared<SyncBatchNorm2d>(5);
  torch::nn::BatchNorm2d torchs{5};
};

at::Tensor some_images(int64_t rows, at::ScalarType dtype = at::kDouble) {
  torch::manual_seed(rows);
  return torch::randn({rows, 5, 4, 3}, dtype) * 3 + 20;  // a mean far from zero
}

void expect_same_state(SyncBatchNorm2d& own, torch::nn::BatchNorm2d& torchs, double tolerance) {
  for (const auto& entry : torchs->named_buffers()) {
    EXPECT_LE(relative_error(own.named_buffers()[entry.key()], entry.value()), tolerance) << entry.key();
  }
}

TEST(SyncBatchNorm, HasTheNamesOfBatchNorm) {
  Pair pair;
  EXPECT_EQ(pair.own->named_parameters().keys(), pair.torchs->named_parameters().keys());
  EXPECT_EQ(pair.own->named_buffers().keys(), pair.torchs->named_buffers().keys());
  EXPECT_EQ(pair.own->named_buffers()["num_batches_tracked"].scalar_type(), at::kLong);
}

TEST(SyncBatchNorm, OnOneRankIsBatchNorm) {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    Pair pair(dtype);
    const double tolerance = dtype == at::kDouble ? 1e-12 : 1e-5;
    for (int repeat = 0; repeat < 3; ++repeat) {
      at::Tensor x = some_images(4 + repeat, dtype).requires_grad_(), reference = x.detach().clone().requires_grad_();
      const at::Tensor y = pair.own->forward(x, {}), expected = pair.torchs->forward(reference);
      EXPECT_LE(relative_error(y, expected), tolerance);
      const at::Tensor gradient = torch::randn_like(y);
      y.backward(gradient);
      expected.backward(gradient);
      EXPECT_LE(relative_error(x.grad(), reference.grad()), tolerance * 10);
    }
    for (const auto& entry : pair.torchs->named_parameters()) {
      EXPECT_LE(relative_error(pair.own->named_parameters()[entry.key()].grad(), entry.value().grad()), tolerance) << entry.key();
    }
    expect_same_state(*pair.own, pair.torchs, tolerance);
    pair.own->eval();
    pair.torchs->eval();
    EXPECT_LE(relative_error(pair.own->forward(some_images(2, dtype), {}), pair.torchs->forward(some_images(2, dtype))), tolerance);
  }
}

TEST(SyncBatchNorm, RowsOfWeightZeroDoNotCount) {
  Pair pair;
  at::Tensor x = some_images(6).requires_grad_(), kept = x.detach().slice(0, 0, 4).clone().requires_grad_();
  const at::Tensor weight = torch::tensor({1.0f, 1.0f, 0.0f});  // a row has two images
  const at::Tensor y = pair.own->forward(x, {.weight = weight, .all_reduce_sum = {}}), expected = pair.torchs->forward(kept);
  EXPECT_LE(relative_error(y.slice(0, 0, 4), expected), 1e-12);
  const at::Tensor gradient = torch::randn_like(expected);
  y.slice(0, 0, 4).backward(gradient);
  expected.backward(gradient);
  EXPECT_LE(relative_error(x.grad().slice(0, 0, 4), kept.grad()), 1e-11);
  EXPECT_EQ(x.grad().slice(0, 4).abs().max().item<double>(), 0);
  expect_same_state(*pair.own, pair.torchs, 1e-12);
}

TEST(SyncBatchNorm, GradientIsTheNumericalOne) {
  Pair pair;
  const at::Tensor weight = torch::tensor({1.0f, 0.0f, 1.0f});
  const at::Tensor direction = torch::randn({3, 5, 4, 3}, at::kDouble);  // also into the row that does not count
  const auto loss = [&](const at::Tensor& x) {
    return (pair.own->forward(x, {.weight = weight, .all_reduce_sum = {}}).square() * direction).sum();
  };
  at::Tensor x = (some_images(3) - 20).requires_grad_();
  loss(x).backward();
  const torch::NoGradGuard no_grad;
  const double step = 1e-5;
  at::Tensor numerical = torch::zeros_like(x).flatten();
  for (int64_t i = 0; i < x.numel(); ++i) {
    at::Tensor up = x.detach().clone(), down = up.clone();
    up.flatten()[i] += step;
    down.flatten()[i] -= step;
    numerical[i] = (loss(up) - loss(down)) / (2 * step);
  }
  EXPECT_LE(relative_error(x.grad().flatten(), numerical), 1e-7);
}

TEST(SyncBatchNorm, KeepsTheInputsDtypeAndLayout) {
  Pair pair(at::kFloat);
  const at::Tensor x = some_images(4, at::kFloat).to(at::kBFloat16, false, false, at::MemoryFormat::ChannelsLast).requires_grad_();
  const at::Tensor y = pair.own->forward(x, {});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LE(relative_error(y, pair.torchs->forward(x.to(at::kFloat))), 1e-2);
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace vla
