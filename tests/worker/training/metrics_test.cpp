// What the trainer measures of itself.
#include <gmock/gmock.h>
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "worker/distributed/process_group.hpp"
#include "worker/flops.hpp"
#include "worker/metric_window.hpp"

namespace vla {
namespace {

using namespace std::chrono_literals;
using testing::DoubleNear;

TEST(CountFlops, CountsProductsAndConvolutionsAsTwoOperationsAMultiplyAdd) {
  const torch::NoGradGuard no_grad;
  const torch::nn::Linear linear(32, 64);
  const auto x = torch::ones({4, 32});
  EXPECT_EQ(count_flops([&] { linear->weight.matmul(x.t()); }), 2 * 4 * 32 * 64);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 8, 3).padding(1).stride(2));
  const auto image = torch::ones({2, 3, 16, 16});
  EXPECT_EQ(count_flops([&] { conv->forward(image); }), 2 * (2 * 8 * 8 * 8) * (3 * 3 * 3));
  EXPECT_EQ(count_flops([&] { torch::relu(image + 1) * 2; }), 0);
  EXPECT_EQ(count_flops([&] { torch::bmm(torch::ones({3, 4, 5}), torch::ones({3, 5, 6})); }), 2 * 3 * 4 * 5 * 6);
}

TEST(CountFlops, CountsBackwardToo) {
  const auto x = torch::ones({4, 32}), w = torch::ones({32, 64}, torch::requires_grad());
  const int64_t forward = 2 * 4 * 32 * 64;
  EXPECT_EQ(count_flops([&] { x.matmul(w).sum().backward(); }), 2 * forward);  // x needs no gradient
  EXPECT_EQ(count_flops([&] { x.clone().requires_grad_().matmul(w).sum().backward(); }), 3 * forward);

  const auto image = torch::ones({2, 3, 16, 16});
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 8, 3).padding(1).stride(2));
  const int64_t of_conv = 2 * (2 * 8 * 8 * 8) * (3 * 3 * 3);
  EXPECT_EQ(count_flops([&] { conv->forward(image).sum().backward(); }), 2 * of_conv);
}

TEST(CountFlops, CountsConvolutionsOfOneDimensionAndTransposedOnes) {
  const torch::NoGradGuard no_grad;
  torch::nn::Conv1d conv(torch::nn::Conv1dOptions(4, 6, 5).padding(2).groups(2));
  EXPECT_EQ(count_flops([&] { conv->forward(torch::ones({3, 4, 10})); }), 2 * (3 * 6 * 10) * (2 * 5));
  torch::nn::ConvTranspose1d up(torch::nn::ConvTranspose1dOptions(4, 6, 4).stride(2).padding(1));
  EXPECT_EQ(count_flops([&] { up->forward(torch::ones({3, 4, 10})); }), 2 * (3 * 4 * 10) * (6 * 4));
}

TEST(CountFlops, AttentionIsTwoProductsHoweverItIsComputed) {
  const auto q = torch::ones({2, 3, 5, 8}, torch::requires_grad()), k = torch::ones({2, 3, 7, 8}, torch::requires_grad());
  const int64_t forward = 2 * 2 * (2 * 3 * 5 * 7 * 8);
  EXPECT_EQ(count_flops([&] { at::scaled_dot_product_attention(q, k, k); }), forward);
  EXPECT_EQ(count_flops([&] { torch::softmax(q.matmul(k.transpose(-1, -2)), -1).matmul(k); }), forward);
  EXPECT_EQ(count_flops([&] { at::scaled_dot_product_attention(q, k, k).sum().backward(); }), 3 * forward);
  EXPECT_EQ(count_flops([&] { torch::softmax(q.matmul(k.transpose(-1, -2)), -1).matmul(k).sum().backward(); }), 3 * forward);
}

TEST(CountFlops, AutocastDoesNotCountTwice) {
  const torch::NoGradGuard no_grad;
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 8, 3).padding(1));
  const auto image = torch::ones({2, 3, 16, 16});
  const int64_t plain = count_flops([&] { conv->forward(image); });
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const int64_t cast = count_flops([&] { conv->forward(image); });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(cast, plain);
}

TEST(PeakFlops, KnowsTheGpuAndThePrecision) {
  EXPECT_EQ(peak_flops("cuda:0 NVIDIA H100 80GB HBM3", "bf16-mixed"), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", "bf16-true"), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA H200", "fp32"), 67e12);
  EXPECT_FALSE(peak_flops("cpu", "fp32"));
}

TEST(StepTimer, DividesAStepIntoItsPhases) {
  StepTimer timer(at::kCPU);
  for (int step = 0; step < 2; ++step) {
    for (const auto mark : {StepMark::kStart, StepMark::kDataReady, StepMark::kForwardDone, StepMark::kBackwardDone, StepMark::kReduced, StepMark::kUpdated}) timer.mark(mark);
  }
  const StepSeconds seconds = timer.take();
  for (const double part : {seconds.data, seconds.forward, seconds.backward, seconds.all_reduce, seconds.optimizer}) {
    EXPECT_GT(part, 0);
    EXPECT_LT(part, 1);
  }
  EXPECT_EQ(timer.take().data, 0);
}

TEST(StepTimer, AMarkThatIsNotReachedCountsAsTheNextOne) {
  StepTimer timer(at::kCPU);
  timer.mark(StepMark::kStart);
  timer.mark(StepMark::kReduced);
  timer.mark(StepMark::kUpdated);
  const StepSeconds seconds = timer.take();
  EXPECT_EQ(seconds.data, 0);
  EXPECT_EQ(seconds.forward, 0);
  EXPECT_EQ(seconds.backward, 0);
  EXPECT_GT(seconds.all_reduce, 0);
}

TEST(MetricWindow, LeavesOutStepsWhoseGradientIsNotFiniteAndCountsThem) {
  const cxxrun::World world(cxxrun::WorkerEnv{}, at::kCPU);
  MetricWindow window(at::kCPU);
  const auto step = [&](double loss, double part, double norm) {
    window.add_loss({torch::tensor(loss), {{"part", torch::tensor(part)}}});
    window.end_step(torch::tensor(norm));
    window.count_step(8);
  };
  step(1, 10, 2);
  step(NAN, 20, NAN);
  step(3, 30, 4);
  const StepMetrics metrics = window.close(world, 0s);
  EXPECT_EQ(metrics.loss, 2);
  EXPECT_EQ(metrics.grad_norm, 3);
  EXPECT_THAT(metrics.more, testing::ElementsAre(std::pair("part", 20.0), std::pair("skipped_steps", 1.0)));
  EXPECT_GT(metrics.samples_per_s, 0);
  EXPECT_EQ(metrics.slowest_rank, 0);
}

TEST(MetricWindow, AddsUpMicroBatches) {
  const cxxrun::World world(cxxrun::WorkerEnv{}, at::kCPU);
  MetricWindow window(at::kCPU);
  window.add_loss({torch::tensor(1.0), {}});
  window.add_loss({torch::tensor(0.5), {}});
  window.end_step(torch::tensor(1.0));
  window.count_step(8);
  EXPECT_THAT(window.close(world, 0s).loss, DoubleNear(1.5, 1e-12));
}

}  // namespace
}  // namespace vla
