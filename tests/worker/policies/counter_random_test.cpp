#include "worker/policies/nn/counter_random.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/support.hpp"
#include "worker/policies/nn/counter_fill.hpp"

namespace vla {
namespace {

const uint32_t kStream = random_stream("test");

TEST(Philox, EqualsRandom123KnownAnswers) {  // kat_vectors, philox4x32 10
  struct Row {
    PhiloxBlock counter;
    uint32_t key[2];
    PhiloxBlock expected;
  };
  const Row rows[] = {
      {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {0xa4093822, 0x299f31d0},
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };
  for (const Row& row : rows) {
    const PhiloxBlock actual = philox4x32_10(row.counter, row.key[0], row.key[1]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(actual.word[i], row.expected.word[i]);
  }
}

TEST(StepRandom, DoesNotDependOnHowABatchIsSplit) {
  const at::Tensor position = torch::arange(10);
  const at::Tensor whole = StepRandom(7, 3, position).normal(kStream, {3, 5}, at::kFloat);
  const at::Tensor part = StepRandom(7, 3, position.slice(0, 4, 9)).normal(kStream, {3, 5}, at::kFloat);
  EXPECT_TRUE(part.equal(whole.slice(0, 4, 9)));
}

TEST(StepRandom, EverySeedStepStreamAndPositionHasItsOwnNumbers) {
  const auto draw = [](uint64_t seed, int64_t step, uint32_t stream, int64_t position) {
    return StepRandom(seed, step, torch::full({1}, position, at::kLong)).uniform(stream, {64}, at::kDouble);
  };
  const at::Tensor base = draw(1, 2, 3, 4);
  EXPECT_TRUE(base.equal(draw(1, 2, 3, 4)));
  for (const at::Tensor& other : {draw(2, 2, 3, 4), draw(1ull << 40 | 1, 2, 3, 4), draw(1, 3, 3, 4), draw(1, 2, 4, 4), draw(1, 2, 3, 5)}) {
    EXPECT_EQ((base == other).sum().item<int64_t>(), 0);
  }
}

TEST(StepRandom, EveryDtypeSeesTheSameNumbers) {
  const StepRandom random(7, 0, torch::arange(64));
  EXPECT_TRUE(random.uniform(kStream, {33}, at::kDouble).equal(random.uniform(kStream, {33}, at::kFloat).to(at::kDouble)));
  const at::Tensor normal = random.normal(kStream, {33}, at::kDouble);
  EXPECT_TRUE(random.normal(kStream, {33}, at::kFloat).equal(normal.to(at::kFloat)));
}

TEST(StepRandom, HasTheMomentsOfItsDistributions) {
  const StepRandom random(7, 0, torch::arange(1000));
  const at::Tensor uniform = random.uniform(kStream, {1000}, at::kDouble);
  EXPECT_GE(uniform.min().item<double>(), 0);
  EXPECT_LT(uniform.max().item<double>(), 1);
  EXPECT_NEAR(uniform.mean().item<double>(), 0.5, 0.002);
  EXPECT_NEAR(uniform.var().item<double>(), 1.0 / 12, 0.001);
  const at::Tensor normal = random.normal(kStream, {1000}, at::kDouble);
  EXPECT_NEAR(normal.mean().item<double>(), 0, 0.005);
  EXPECT_NEAR(normal.var().item<double>(), 1, 0.01);
  EXPECT_NEAR(normal.pow(3).mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(normal.pow(4).mean().item<double>(), 3, 0.05);
  const at::Tensor pairs = normal.view({-1, 2});  // sine and cosine of one draw
  EXPECT_NEAR((pairs.select(1, 0) * pairs.select(1, 1)).mean().item<double>(), 0, 0.005);
}

TEST(StepRandom, DropoutKeepsItsShareAndScalesIt) {
  const StepRandom random(7, 0, torch::arange(1000));
  const at::Tensor dropped = random.dropout(torch::ones({1000, 1000}), 0.3, kStream, 0);
  EXPECT_NEAR((dropped == 0).to(at::kDouble).mean().item<double>(), 0.3, 0.002);
  EXPECT_TRUE((dropped == 0).logical_or((dropped - 1 / 0.7f).abs() < 1e-6).all().item<bool>());
}

TEST(StepRandom, DropoutMaskIsThatOfTheRowsMovedToTheFront) {
  const StepRandom random(7, 0, torch::arange(6));
  const at::Tensor x = torch::randn({6, 5, 7});
  const at::Tensor expected = random.dropout(x, 0.5, kStream, 0);
  EXPECT_TRUE(random.dropout(x.transpose(0, 1).contiguous(), 0.5, kStream, 1).transpose(0, 1).equal(expected));
  EXPECT_TRUE(random.dropout(x.permute({1, 2, 0}), 0.5, kStream, 2).permute({2, 0, 1}).equal(expected));
}

TEST(StepRandom, GradientOfDropoutUsesTheForwardsMask) {
  const StepRandom random(7, 0, torch::arange(6));
  at::Tensor x = torch::randn({5, 6, 7}, at::TensorOptions(at::kDouble).requires_grad(true));
  const at::Tensor y = random.dropout(x, 0.5, kStream, 1);
  const at::Tensor gradient = torch::randn_like(y);
  y.backward(gradient.transpose(0, 2).contiguous().transpose(0, 2));  // not contiguous
  EXPECT_TRUE(x.grad().equal(random.dropout(gradient, 0.5, kStream, 1)));
}

TEST(StepRandom, GpuDrawsTheCpusNumbers) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const at::Tensor position = torch::arange(100, 137);
  const StepRandom cpu(1ull << 35 | 7, 12, position), gpu(1ull << 35 | 7, 12, position.cuda());
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(gpu.uniform(kStream, {3, 11}, dtype).cpu().equal(cpu.uniform(kStream, {3, 11}, dtype)));
    const double tolerance = dtype == at::kDouble ? 1e-14 : dtype == at::kFloat ? 1e-7 : 1e-2;
    EXPECT_LE(relative_error(gpu.normal(kStream, {3, 11}, dtype).cpu(), cpu.normal(kStream, {3, 11}, dtype)), tolerance);
    const at::Tensor x = torch::randn({9, 37, 5}).to(dtype);
    EXPECT_TRUE(gpu.dropout(x.cuda(), 0.1, kStream, 1).cpu().equal(cpu.dropout(x, 0.1, kStream, 1)));
  }
}

}  // namespace
}  // namespace vla
