#include "worker/augment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/color_ops.hpp"
#include "worker/image_ops.hpp"
#include "worker/policies/nn/counter_random.hpp"

namespace vla {
namespace {

const std::string kCamera = "observation.images.top";

AugmentOptions everything() {
  AugmentOptions options;
  options.enable = true;
  options.max_num_transforms = 7;
  options.noise.weight = 1;
  options.random_crop = {18, 21};
  return options;
}

// All weights 0 but that of the option that `pick` names.
template <class Pick>
AugmentOptions only(Pick pick) {
  AugmentOptions options;
  options.enable = true;
  for (auto* jitter : {&options.brightness, &options.contrast, &options.saturation, &options.hue, &options.sharpness}) jitter->weight = 0;
  options.affine.weight = 0;
  pick(options).weight = 1;
  return options;
}

at::Tensor run(const AugmentOptions& options, const at::Tensor& images, const at::Tensor& position, int64_t step = 5, uint64_t seed = 11,
               const std::string& camera = kCamera) {
  return Augmenter(options, {camera}, seed, at::kCPU).apply(images, position, camera, step);
}

at::Tensor images_of(int64_t rows) {
  torch::manual_seed(3);
  return torch::rand({rows, 3, 20, 24}).contiguous(at::MemoryFormat::ChannelsLast);
}

TEST(Augment, DoesNotDependOnHowABatchIsSplit) {
  const at::Tensor images = images_of(8), position = torch::arange(8);
  for (const bool random_order : {false, true}) {
    for (const bool crop_per_sample : {false, true}) {
      AugmentOptions options = everything();
      options.random_order = random_order;
      options.crop_per_sample = crop_per_sample;
      const at::Tensor whole = run(options, images, position);
      const at::Tensor halves = at::cat({run(options, images.slice(0, 0, 4), position.slice(0, 0, 4)),
                                         run(options, images.slice(0, 4), position.slice(0, 4))});
      EXPECT_TRUE(whole.equal(halves));
      EXPECT_FALSE(whole.equal(images));
      EXPECT_GE(whole.min().item<float>(), 0);
      EXPECT_LE(whole.max().item<float>(), 1);
      EXPECT_EQ(whole.strides(), images.strides());
      // A sample's own numbers, wherever it stands.
      EXPECT_TRUE(run(options, images.flip(0), position.flip(0)).flip(0).equal(whole));
    }
  }
}

TEST(Augment, EverySeedStepAndCameraHasItsOwnChanges) {
  const at::Tensor images = images_of(4), position = torch::arange(4);
  const at::Tensor base = run(everything(), images, position);
  EXPECT_TRUE(base.equal(run(everything(), images, position)));
  for (const at::Tensor& other : {run(everything(), images, position, 6), run(everything(), images, position, 5, 12),
                                  run(everything(), images, position, 5, 11, "observation.images.wrist")}) {
    for (int64_t i = 0; i < 4; ++i) EXPECT_FALSE(other[i].equal(base[i]));
  }
}

TEST(Augment, FactorsFillTheirRange) {
  AugmentOptions options = only([](AugmentOptions& o) -> JitterOptions& { return o.brightness; });
  options.brightness.range = {0.2, 0.6};
  const at::Tensor images = torch::full({2000, 3, 4, 4}, 0.5f);
  const at::Tensor factor = run(options, images, torch::arange(2000)).select(1, 0).select(1, 0).select(1, 0) / 0.5;
  EXPECT_NEAR(factor.min().item<double>(), 0.2, 0.002);
  EXPECT_NEAR(factor.max().item<double>(), 0.6, 0.002);
  EXPECT_NEAR(factor.mean().item<double>(), 0.4, 0.01);
}

// Tells which transforms a sample got from what they do to an image of one colour.
TEST(Augment, DrawsASubsetByWeightWithoutReplacement) {
  AugmentOptions options;
  options.enable = true;
  options.max_num_transforms = 1;
  options.contrast.weight = options.sharpness.weight = options.affine.weight = 0;
  options.brightness = {.range = {0.5, 0.5}, .weight = 1};
  options.saturation = {.range = {0, 0}, .weight = 3};
  options.hue = {.range = {0.5, 0.5}, .weight = 0};
  const int64_t rows = 4000;
  const at::Tensor images = torch::tensor({0.8f, 0.4f, 0.2f}).view({1, 3, 1, 1}).expand({rows, 3, 3, 3}).contiguous();
  const auto shares = [&] {
    const at::Tensor pixel = run(options, images, torch::arange(rows)).select(-1, 0).select(-1, 0);  // [rows, 3]
    const at::Tensor grey = (pixel.amax(1) - pixel.amin(1)) < 1e-3, dark = pixel.amax(1) < 0.41;
    const at::Tensor both = grey.logical_and(pixel.amax(1) < 0.3);
    const auto share = [](const at::Tensor& x) { return x.to(at::kDouble).mean().item<double>(); };
    return std::vector<double>{share(dark.logical_and(grey.logical_not())), share(grey.logical_and(both.logical_not())), share(both)};
  };
  EXPECT_THAT(shares(), testing::ElementsAre(testing::DoubleNear(0.25, 0.03), testing::DoubleNear(0.75, 0.03), 0));
  options.max_num_transforms = 2;
  EXPECT_THAT(shares(), testing::ElementsAre(0, 0, 1));
  options.probability = 0.5;
  EXPECT_THAT(shares(), testing::ElementsAre(0, 0, testing::DoubleNear(0.5, 0.03)));
}

TEST(Augment, RandomOrderAppliesTheDrawnOrder) {
  AugmentOptions options;
  options.enable = true;
  options.max_num_transforms = 2;
  options.brightness = {.range = {2, 2}, .weight = 1};  // clamps, so the order shows
  options.contrast = {.range = {0, 0}, .weight = 1};  // the mean grey
  options.saturation.weight = options.hue.weight = options.sharpness.weight = options.affine.weight = 0;
  const at::Tensor images = at::cat({torch::zeros({1000, 3, 4, 2}), torch::full({1000, 3, 4, 2}, 0.9f)}, -1);
  const auto values = [&] { return run(options, images, torch::arange(1000)).select(1, 0).select(1, 0).select(1, 0); };
  EXPECT_LE((values() - 0.5f).abs().max().item<double>(), 1e-3);  // brightness first: mean of 0 and 1
  options.random_order = true;
  const at::Tensor contrast_first = (values() - 0.9f).abs() < 2e-3;  // twice the mean 0.45
  EXPECT_NEAR(contrast_first.to(at::kDouble).mean().item<double>(), 0.5, 0.05);
  EXPECT_TRUE(contrast_first.logical_or((values() - 0.5f).abs() < 2e-3).all().item<bool>());
}

TEST(Augment, CropIsOneWindowAStepResizedBack) {
  AugmentOptions options = only([](AugmentOptions& o) -> JitterOptions& { return o.noise; });
  options.noise.weight = 0;
  options.random_crop = {18, 21};
  const at::Tensor images = images_of(4), position = torch::arange(4);
  const at::Tensor actual = run(options, images, position);
  int matches = 0;
  for (int64_t top = 0; top <= 2; ++top) {
    for (int64_t left = 0; left <= 3; ++left) {
      matches += resize_bilinear(images.narrow(2, top, 18).narrow(3, left, 21), 20, 24).equal(actual);
    }
  }
  EXPECT_EQ(matches, 1);
  options.random_crop = {18, 40};
  try {
    run(options, images, position);
    FAIL() << "the window does not fit";
  } catch (const cxxrun::UsageError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("augment.random_crop"), testing::HasSubstr("20x24")));
  }
}

TEST(Augment, ShiftsAreWholePixelsWithinTheirShare) {
  AugmentOptions options = only([](AugmentOptions& o) -> AffineOptions& { return o.affine; });
  options.affine.degrees = {0, 0};
  options.affine.translate = {0.1, 0};
  const at::Tensor columns = torch::arange(1, 21).to(at::kFloat).div(100).view({1, 1, 1, 20}).expand({500, 3, 6, 20}).contiguous();
  const at::Tensor middle = run(options, columns, torch::arange(500)).select(1, 0).select(1, 3).select(1, 10).mul(100).round() - 11;
  EXPECT_EQ(middle.min().item<double>(), -2);
  EXPECT_EQ(middle.max().item<double>(), 2);
}

TEST(Augment, ChangesTheNamedCamerasOfABatchOnlyIfEnabled) {
  Batch batch;
  batch.fields = {{kCamera, images_of(4)}, {"observation.state", torch::rand({4, 3})}};
  batch.position = torch::arange(4);
  AugmentOptions options = everything();
  options.enable = false;
  Augmenter(options, {kCamera}, 1, at::kCPU).apply(batch, 0);
  EXPECT_TRUE(batch.at(kCamera).equal(images_of(4)));
  options.enable = true;
  const at::Tensor state = batch.at("observation.state").clone();
  Augmenter(options, {kCamera}, 1, at::kCPU).apply(batch, 0);
  EXPECT_FALSE(batch.at(kCamera).equal(images_of(4)));
  EXPECT_TRUE(batch.at("observation.state").equal(state));
}

TEST(Augment, RefusesRangesThatMakeNoSense) {
  const auto error_of = [](auto change) {
    AugmentOptions options;
    change(options);
    try {
      options.validate();
    } catch (const cxxrun::UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of([](AugmentOptions&) {}), "no error");
  EXPECT_THAT(error_of([](AugmentOptions& o) { o.hue.range = {-0.6, 0.1}; }), testing::HasSubstr("augment.hue.range = [-0.6, 0.1]"));
  EXPECT_THAT(error_of([](AugmentOptions& o) { o.contrast.range = {1.2, 0.8}; }), testing::HasSubstr("augment.contrast.range"));
  EXPECT_THAT(error_of([](AugmentOptions& o) { o.brightness.range = {1}; }), testing::HasSubstr("augment.brightness.range = [1]"));
  EXPECT_THAT(error_of([](AugmentOptions& o) { o.affine.translate = {0.1, 2}; }), testing::HasSubstr("augment.affine.translate"));
  EXPECT_THAT(error_of([](AugmentOptions& o) { o.random_crop = {3}; }), testing::HasSubstr("augment.random_crop"));
}

TEST(Augment, GpuGivesTheCpusImages) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const at::Tensor images = images_of(8), position = torch::arange(8);
  AugmentOptions options = everything();
  options.affine.weight = 0;  // nearest neighbours differ where a pixel falls between two
  options.random_order = true;
  const at::Tensor gpu = Augmenter(options, {kCamera}, 11, at::kCUDA).apply(images.cuda(), position.cuda(), kCamera, 5);
  EXPECT_LE((gpu.cpu() - run(options, images, position)).abs().max().item<double>(), 1e-4);
}

}  // namespace
}  // namespace vla
