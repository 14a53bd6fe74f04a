// Values of diffusers: DDPMScheduler and DDIMScheduler.
#include "worker/policies/nn/noise_scheduler.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace vla {
namespace {

float at(const NoiseScheduler& scheduler, int64_t timestep) { return scheduler.alphas_cumprod()[timestep].item<float>(); }

TEST(NoiseScheduler, SquaredCosineIsDiffusers) {
  const NoiseScheduler hundred({});
  EXPECT_FLOAT_EQ(at(hundred, 0), 0.9993687272071838F);
  EXPECT_FLOAT_EQ(at(hundred, 1), 0.9982525110244751F);
  EXPECT_FLOAT_EQ(at(hundred, 10), 0.9667166471481323F);
  EXPECT_FLOAT_EQ(at(hundred, 50), 0.47826457023620605F);
  EXPECT_FLOAT_EQ(at(hundred, 98), 0.00024285720428451896F);
  EXPECT_FLOAT_EQ(at(hundred, 99), 2.4285407107527135e-07F);

  const NoiseScheduler thousand({.num_train_timesteps = 1000});
  for (const auto& [timestep, value] : std::map<int64_t, double>{
           {0, 0.999958694}, {100, 0.971575439}, {200, 0.897762597}, {400, 0.645987749}, {500, 0.492284685}, {599, 0.340809226}, {799, 0.0940455347}}) {
    EXPECT_NEAR(at(thousand, timestep), value, 2e-6 * value) << timestep;
  }
  EXPECT_NEAR(at(thousand, 999), 2.42873299e-09, 5e-4 * 2.42873299e-09);
}

TEST(NoiseScheduler, LinearSchedulesBeginAndEndAsTold) {
  const NoiseScheduler linear({.num_train_timesteps = 10, .beta_schedule = "linear", .beta_start = 0.1, .beta_end = 0.2});
  EXPECT_FLOAT_EQ(at(linear, 0), 0.9F);
  EXPECT_FLOAT_EQ(at(linear, 9) / at(linear, 8), 0.8F);
  EXPECT_FLOAT_EQ(at(linear, 1) / at(linear, 0), 1 - 0.1F - 0.1F / 9);
  const NoiseScheduler scaled({.num_train_timesteps = 3, .beta_schedule = "scaled_linear", .beta_start = 0.01, .beta_end = 0.09});
  EXPECT_FLOAT_EQ(at(scaled, 1) / at(scaled, 0), 0.96F);
}

TEST(NoiseScheduler, TimestepsLeadTheirSpacing) {
  const NoiseScheduler scheduler({});
  EXPECT_EQ(scheduler.timesteps(10), (std::vector<int64_t>{90, 80, 70, 60, 50, 40, 30, 20, 10, 0}));
  EXPECT_EQ(scheduler.timesteps(3), (std::vector<int64_t>{66, 33, 0}));
  EXPECT_EQ(scheduler.timesteps(100).front(), 99);
}

TEST(NoiseScheduler, NoiseIsAddedByTheRowsTimestep) {
  const NoiseScheduler scheduler({});
  const at::Tensor clean = torch::tensor({{1.0F, -1.0F}, {0.5F, 0.25F}}), noise = torch::tensor({{0.5F, 2.0F}, {-1.0F, 1.0F}});
  const at::Tensor noisy = scheduler.add_noise(clean, noise, torch::tensor({10, 98}));
  EXPECT_NEAR(noisy[0][1].item<double>(), -std::sqrt(0.9667166471) + 2 * std::sqrt(1 - 0.9667166471), 1e-6);
  EXPECT_NEAR(noisy[1][0].item<double>(), 0.5 * std::sqrt(0.00024285720428) - std::sqrt(1 - 0.00024285720428), 1e-6);
  EXPECT_EQ(scheduler.add_noise(clean.to(at::kBFloat16), noise.to(at::kBFloat16), torch::tensor({10, 98})).scalar_type(), at::kBFloat16);
}

TEST(NoiseScheduler, StepsOfDdpmHaveDiffusersMeanAndVariance) {
  const NoiseScheduler scheduler({});
  const at::Tensor x = torch::tensor({0.3F}), output = torch::tensor({-0.2F});
  struct Row {
    int64_t timestep;
    double mean, variance;
  };
  for (const Row& row : {Row{99, 0.02505277, 0.9987576}, Row{50, 0.3137229, 0.03060438}, Row{1, 0.3055162, 0.0004034866}, Row{0, 0.3051214, 0}}) {
    const double mean = scheduler.step(output, row.timestep, 100, x, torch::zeros({1})).item<double>();
    const double moved = scheduler.step(output, row.timestep, 100, x, torch::ones({1})).item<double>();
    EXPECT_NEAR(mean, row.mean, 1e-6) << row.timestep;
    EXPECT_NEAR((moved - mean) * (moved - mean), row.variance, 1e-5 * row.variance + 1e-9) << row.timestep;
    EXPECT_EQ(scheduler.needs_noise(row.timestep), row.timestep > 0);
  }
}

// x = sqrt(alpha) clean + sqrt(1 - alpha) noise: with the true noise as the model's output, every step stays on that line.
TEST(NoiseScheduler, StepsOfDdimFollowAKnownNoise) {
  for (const char* prediction : {"epsilon", "sample"}) {
    const NoiseScheduler scheduler({.type = "DDIM", .prediction_type = prediction, .clip_sample = false});
    const at::Tensor clean = torch::tensor({0.7F, -0.2F}), noise = torch::tensor({1.3F, -0.4F});
    const auto line = [&](double alpha) { return std::sqrt(alpha) * clean + std::sqrt(1 - alpha) * noise; };
    at::Tensor x = line(at(scheduler, 80));
    for (const int64_t timestep : {80, 60, 40, 20, 0}) {
      EXPECT_FALSE(scheduler.needs_noise(timestep));
      x = scheduler.step(scheduler.target(clean, noise), timestep, 5, x, {});
      const double alpha = timestep == 0 ? 1 : at(scheduler, timestep - 20);
      EXPECT_LE((x - line(alpha)).abs().max().item<double>(), 2e-6) << prediction << " " << timestep;
    }
  }
}

TEST(NoiseScheduler, ClipsWhatItTakesForTheActions) {
  const at::Tensor x = torch::tensor({3.0F}), output = torch::tensor({0.0F});
  EXPECT_FLOAT_EQ(NoiseScheduler({.clip_sample_range = 0.5}).step(output, 0, 100, x, {}).item<float>(), 0.5F);
  EXPECT_GT(NoiseScheduler({.clip_sample = false}).step(output, 0, 100, x, {}).item<float>(), 2.9F);
}

}  // namespace
}  // namespace vla
