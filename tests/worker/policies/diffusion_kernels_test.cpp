// The fused batch norm, convolutions over time as products, the U-Net's norm, losses and ACT's latent, each against its formula in float64.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/support.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/group_norm_mish.hpp"
#include "worker/policies/nn/latent_sample.hpp"
#include "worker/policies/nn/masked_error.hpp"
#include "worker/policies/nn/noise_scheduler.hpp"
#include "worker/policies/nn/sync_batch_norm.hpp"
#include "worker/policies/nn/unfold_steps.hpp"

namespace vla {
namespace {

at::Tensor leaf(at::IntArrayRef sizes, double offset = 0) {
  return (torch::randn(sizes, at::TensorOptions(at::kDouble).device(test_device())) + offset).requires_grad_();
}

void expect_same_gradients(const at::Tensor& actual, const at::Tensor& expected, const std::vector<at::Tensor>& inputs, double tolerance = 1e-12) {
  EXPECT_LE(relative_error(actual, expected), tolerance);
  const at::Tensor gradient = torch::randn_like(expected);
  const auto is = torch::autograd::grad({actual}, inputs, {gradient.to(actual.scalar_type())});
  const auto should = torch::autograd::grad({expected}, inputs, {gradient});
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_LE(relative_error(is[i], should[i]), tolerance) << i;
}

// Two rows of three images each; the last row only pads. Two equal ranks, if `ranks` is 2.
struct NormCase {
  bool has_residual = false, relu = false, pads = false;
  int ranks = 1;
  int64_t channels = 6;
};

TEST(FusedBatchNorm, IsThePlainOneWithWhatFollowsIt) {
  for (const NormCase& c : {NormCase{}, NormCase{.relu = true}, NormCase{.has_residual = true}, NormCase{.has_residual = true, .relu = true},
                            NormCase{.relu = true, .pads = true}, NormCase{.relu = true, .pads = true, .ranks = 2}, NormCase{.relu = true, .channels = 64}}) {
    torch::manual_seed(2);
    SyncBatchNorm2d norm(c.channels);
    norm.to(test_device(), at::kDouble);
    BatchStatistics batch;
    batch.weight = torch::ones({2}, at::TensorOptions(at::kFloat).device(test_device()));
    if (c.pads) batch.weight[1] = 0;
    if (c.ranks > 1) batch.all_reduce_sum = [&](at::Tensor sums) { sums.mul_(c.ranks); };
    const at::Tensor x = leaf({6, c.channels, 5, 7}, 3), residual = c.has_residual ? leaf({6, c.channels, 5, 7}) : at::Tensor();
    std::vector<at::Tensor> inputs{x, norm.named_parameters()["weight"], norm.named_parameters()["bias"]};
    if (c.has_residual) inputs.push_back(residual);
    for (auto& parameter : norm.parameters()) parameter.detach().uniform_(0.5, 1.5);

    const at::Tensor expected = norm.forward(x, batch, residual, c.relu);
    std::map<std::string, at::Tensor> buffers;
    for (auto& entry : norm.named_buffers()) {
      buffers[entry.key()] = entry.value().clone();
      entry.value().fill_(entry.key() == "running_var" ? 1 : 0);
    }
    const FastModeScope fast(true);
    const at::Tensor actual = norm.forward(x, batch, residual, c.relu);
    expect_same_gradients(actual, expected, inputs);
    for (const auto& entry : norm.named_buffers()) EXPECT_LE(relative_error(entry.value(), buffers.at(entry.key())), 1e-14) << entry.key();
  }
}

TEST(FusedBatchNorm, OfLargeMeansIsExactInFloat) {
  torch::manual_seed(2);
  SyncBatchNorm2d norm(64);
  norm.to(test_device());
  const at::Tensor exact = leaf({8, 64, 24, 24}, 1000).detach(), x = exact.to(at::kFloat);
  const FastModeScope fast(true);
  const at::Tensor y = norm.forward(x, {}, {}, false);
  const at::Tensor deviation = exact - exact.mean({0, 2, 3}, true);
  EXPECT_LE(relative_error(y, deviation / (deviation.square().mean({0, 2, 3}, true) + 1e-5).sqrt()), 1e-4);  // x itself is off by 6e-5
}

TEST(ConvolveSteps, IsTheConvolution) {
  struct Row {
    int64_t in, out, kernel, stride, padding;
  };
  for (const Row& row : {Row{7, 16, 5, 1, 2}, Row{16, 8, 3, 2, 1}, Row{16, 24, 1, 1, 0}, Row{8, 8, 4, 3, 0}}) {
    torch::nn::Conv1d convolution(torch::nn::Conv1dOptions(row.in, row.out, row.kernel).stride(row.stride).padding(row.padding));
    convolution->to(test_device(), at::kDouble);
    const at::Tensor x = leaf({3, 8, row.in});
    expect_same_gradients(convolve_steps(x, *convolution), convolution->forward(x.transpose(1, 2)).transpose(1, 2),
                          {x, convolution->weight, convolution->bias});
  }
}

TEST(ConvolveSteps, IsTheTransposedConvolution) {
  torch::nn::ConvTranspose1d convolution(torch::nn::ConvTranspose1dOptions(16, 8, 4).stride(2).padding(1));
  convolution->to(test_device(), at::kDouble);
  const at::Tensor x = leaf({3, 5, 16});
  expect_same_gradients(convolve_steps(x, *convolution), convolution->forward(x.transpose(1, 2)).transpose(1, 2),
                        {x, convolution->weight, convolution->bias});
}

TEST(ConvolveSteps, OfAWeightStoredForProductsGivesGradientsStoredAlike) {
  torch::nn::Conv1d convolution(torch::nn::Conv1dOptions(16, 8, 5).padding(2));
  const at::Tensor before = convolution->weight.detach().clone();
  convolution->weight.set_data(stored_for_products(convolution->weight.detach()));
  EXPECT_TRUE(convolution->weight.equal(before));
  convolution->to(test_device(), at::kDouble);
  convolve_steps(leaf({3, 8, 16}), *convolution).sum().backward();
  EXPECT_EQ(convolution->weight.strides(), (std::vector<int64_t>{80, 1, 16}));
  EXPECT_EQ(convolution->weight.grad().strides(), convolution->weight.strides());
}

TEST(GroupNormMish, IsItsFormulaWithItsGradients) {
  // Of a group 12 channels in packs; 5 one by one; more than a block has threads; more steps than those that stand beside each other.
  for (const auto& [channels, steps] : {std::pair<int64_t, int64_t>{24, 4}, {10, 7}, {1152, 4}, {64, 37}}) {
    torch::nn::GroupNorm norm(torch::nn::GroupNormOptions(2, channels));
    norm->to(test_device(), at::kDouble);
    for (auto& parameter : norm->parameters()) parameter.detach().uniform_(0.5, 1.5);
    const at::Tensor x = leaf({3, steps, channels}), scales = leaf({3, 2 * channels}), shifts = leaf({3, channels}), residual = leaf({3, steps, channels});
    const auto plain = [&] { return at::mish(norm->forward(x.transpose(1, 2)).transpose(1, 2)); };
    const std::vector<at::Tensor> inputs{x, norm->weight, norm->bias};
    const auto with = [&](const at::Tensor& more) {
      auto all = inputs;
      all.push_back(more);
      return all;
    };
    expect_same_gradients(group_norm_mish(x, *norm, {}, {}), plain(), inputs);
    expect_same_gradients(group_norm_mish(x, *norm, {}, residual), plain() + residual, with(residual));
    expect_same_gradients(group_norm_mish(x, *norm, shifts, {}), plain() + shifts.unsqueeze(1), with(shifts));
    const auto halves = scales.unsqueeze(1).chunk(2, 2);
    expect_same_gradients(group_norm_mish(x, *norm, scales, {}), plain() * halves[0] + halves[1], with(scales));
  }
}

TEST(GroupNormMish, OfFloatsAndSixteenBitsIsCloseToDoubles) {
  for (const auto& [dtype, parameters, tolerance] :
       {std::tuple{at::kFloat, at::kFloat, 1e-5}, {at::kBFloat16, at::kFloat, 0.01}, {at::kBFloat16, at::kBFloat16, 0.01}}) {
    const auto make = [](at::IntArrayRef sizes, at::ScalarType type) { return leaf(sizes).detach().to(type).requires_grad_(); };
    torch::nn::GroupNorm norm(torch::nn::GroupNormOptions(8, 64));
    norm->to(test_device(), parameters);
    const at::Tensor x = make({3, 16, 64}, dtype), scales = make({3, 128}, dtype);
    const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
    const auto halves = wide(scales).unsqueeze(1).chunk(2, 2);
    const at::Tensor normalized = at::group_norm(wide(x).transpose(1, 2), 8, wide(norm->weight), wide(norm->bias)).transpose(1, 2);
    expect_same_gradients(group_norm_mish(x, *norm, scales, {}), at::mish(normalized) * halves[0] + halves[1], {x, scales, norm->weight, norm->bias},
                          tolerance);
  }
}

TEST(GroupNormRelu, IsItsFormulaWithItsGradients) {
  for (const int64_t channels : {6, 64}) {
    torch::nn::GroupNorm norm(torch::nn::GroupNormOptions(2, channels));
    norm->to(test_device(), at::kDouble);
    for (auto& parameter : norm->parameters()) parameter.detach().uniform_(0.5, 1.5);
    const at::Tensor x = leaf({3, channels, 9, 11}), residual = leaf({3, channels, 9, 11});
    for (const bool relu : {false, true}) {
      const auto end = [&](const at::Tensor& sum) { return relu ? sum.relu() : sum; };
      expect_same_gradients(group_norm_relu(x, *norm, {}, relu), end(norm->forward(x)), {x, norm->weight, norm->bias});
      const at::Tensor y = group_norm_relu(x, *norm, residual, relu);
      EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
      expect_same_gradients(y, end(norm->forward(x) + residual), {x, residual, norm->weight, norm->bias});
    }
  }
}

TEST(MaskedError, IsTheSumOfErrorsThatCount) {
  const at::Tensor prediction = leaf({3, 50, 7}), target = leaf({3, 50, 7}).detach();
  const at::Tensor weight = torch::tensor({1.0F, 0.0F, 1.0F}).to(test_device()), is_pad = torch::rand({3, 50}).to(test_device()) < 0.3;
  const auto error = [&] { return (prediction - target) * weight.view({3, 1, 1}); };
  expect_same_gradients(masked_error_sum(prediction, target, weight, {}, ErrorNorm::kSquared), error().square().sum(), {prediction});
  expect_same_gradients(masked_error_sum(prediction, target, weight, is_pad, ErrorNorm::kAbsolute),
                        (error().abs() * is_pad.logical_not().unsqueeze(-1)).sum(), {prediction});
}

TEST(MaskedError, OfSixteenBitsAddsUpInFloat) {
  const at::Tensor prediction = leaf({3, 50, 7}).detach().to(at::kBFloat16), target = leaf({3, 50, 7}).detach().to(at::kFloat);
  const at::Tensor sum = masked_error_sum(prediction, target, torch::ones({3}).to(test_device()), {}, ErrorNorm::kAbsolute);
  EXPECT_EQ(sum.scalar_type(), at::kFloat);
  EXPECT_LE(relative_error(sum, (prediction.to(at::kFloat) - target).abs().sum()), 1e-6);
}

TEST(SampleLatent, IsItsFormulaWithItsGradients) {
  const at::Tensor parameters = leaf({5, 64}), noise = leaf({5, 32}).detach(), of_sample = torch::randn_like(noise);
  const at::Tensor weight = torch::tensor({1.0F, 0.0F, 1.0F, 1.0F, 0.0F}).to(test_device());
  const auto halves = parameters.chunk(2, 1);
  const at::Tensor latent = halves[0] + (halves[1] / 2).exp() * noise;
  const at::Tensor divergence = (-0.5 * (1 + halves[1] - halves[0].square() - halves[1].exp()).sum(1) * weight).sum();
  const SampledLatent sample = sample_latent(parameters, noise, weight);
  EXPECT_LE(relative_error(sample.latent, latent), 1e-12);
  expect_same_gradients(sample.divergence + (sample.latent * of_sample).sum(), divergence + (latent * of_sample).sum(), {parameters});

  const at::Tensor coarse = parameters.detach().to(at::kBFloat16);
  const SampledLatent rounded = sample_latent(coarse, noise.to(at::kBFloat16), weight), exact = sample_latent(coarse.to(at::kDouble), noise, weight);
  EXPECT_EQ(rounded.divergence.scalar_type(), at::kFloat);
  EXPECT_LE(relative_error(rounded.divergence, exact.divergence), 1e-6);
  EXPECT_LE(relative_error(rounded.latent, exact.latent), 0.01);
}

TEST(NoisyByTimestep, IsTheSchedulers) {
  const NoiseScheduler scheduler({});
  const at::Tensor timesteps = torch::tensor({0, 57, 99}, at::kLong).to(test_device());
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor clean = leaf({3, 16, 7}).detach().to(dtype), noise = leaf({3, 16, 7}).detach().to(dtype);
    const at::Tensor expected = scheduler.add_noise(clean, noise, timesteps);
    const FastModeScope fast(true);
    const at::Tensor actual = scheduler.add_noise(clean, noise, timesteps);
    EXPECT_EQ(actual.scalar_type(), dtype);
    EXPECT_LE(relative_error(actual, expected), dtype == at::kBFloat16 ? 0.004 : 1e-6);
  }
}

}  // namespace
}  // namespace vla
