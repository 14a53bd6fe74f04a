#include "worker/policies/normalizer.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "tests/worker/policies/support.hpp"
#include "worker/image_ops.hpp"

namespace vla {
namespace {

using data::FeatureType;
using testing::AllOf;
using testing::HasSubstr;

const std::map<FeatureType, NormalizationMode> kMeanStd = {{FeatureType::kState, NormalizationMode::kMeanStd},
                                                           {FeatureType::kAction, NormalizationMode::kMeanStd}};
const std::map<FeatureType, NormalizationMode> kMinMax = {{FeatureType::kAction, NormalizationMode::kMinMax}};

data::DatasetStats test_stats() {
  data::DatasetStats stats;
  stats["observation.state"] = {{"mean", {{5}, {1, 2, 3, 4, 5}}}, {"std", {{5}, {1, 2, 0, 0.5, 1e-3}}}};
  stats["action"] = {{"mean", {{3}, {0, 1, 2}}}, {"std", {{3}, {1, 2, 3}}}, {"min", {{3}, {-1, 0, 4}}}, {"max", {{3}, {1, 10, 4}}}};
  return stats;
}

std::string error_with(const data::DatasetStats& stats) {
  try {
    Normalizer(kMeanStd, test_features(), stats, at::kCPU);
  } catch (const cxxrun::DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Normalizer, MeanStdAddsEpsForwardOnlyInFloat32) {
  const Normalizer normalizer(kMeanStd, test_features(), test_stats(), at::kCPU);
  Batch batch;
  batch.fields["observation.state"] = torch::tensor({{2.0f, 0.0f, 3.5f, 4.0f, 5.0f}});
  normalizer.normalize(batch);
  const at::Tensor expected = torch::tensor({{1.0f, -1.0f, 0.5f / 1e-8f, 0.0f, 0.0f}});
  EXPECT_LE(relative_error(batch.at("observation.state"), expected), 1e-7);
  const at::Tensor actions = torch::tensor({{1.0f, -1.0f, 2.0f}});
  EXPECT_TRUE(normalizer.unnormalize(actions).equal(torch::tensor({{1.0f, -1.0f, 8.0f}})));
}

TEST(Normalizer, MinMaxMapsToMinusOneAndOneAndAConstantFeatureToMinusOne) {
  const Normalizer normalizer(kMinMax, test_features(), test_stats(), at::kCPU, at::kDouble);
  Batch batch;
  const at::Tensor actions = torch::tensor({{-1.0, 0.0, 4.0}, {1.0, 10.0, 4.0}, {0.5, 5.0, 4.0}}, at::kDouble);
  batch.fields["action"] = actions;
  normalizer.normalize(batch, at::kDouble);
  const at::Tensor expected = torch::tensor({{-1.0, -1.0, -1.0}, {1.0, 1.0, -1.0}, {0.5, 0.0, -1.0}}, at::kDouble);
  EXPECT_LE(relative_error(batch.at("action"), expected), 1e-15);
  EXPECT_LE(relative_error(normalizer.unnormalize(batch.at("action")), actions), 1e-9);
}

// diffusion_policy: of [-1, 3] half the distance from 1; a constant only moves to 0.
TEST(Normalizer, LimitsMoveAConstantFeatureToZeroAndLimitsXyzLeaveAllButThreeAlone) {
  PolicyFeatures features = test_features();
  features.outputs[0].shape = {4};
  data::DatasetStats stats;
  stats["action"] = {{"min", {{4}, {-1, 0, 2, 10}}}, {"max", {{4}, {3, 0, 2.00005, 20}}}};
  const at::Tensor actions = torch::tensor({{3.0, 0.0, 2.0, 20.0}, {0.0, 0.5, 2.5, 12.5}}, at::kDouble);
  for (const auto mode : {NormalizationMode::kLimits, NormalizationMode::kLimitsXyz}) {
    const Normalizer normalizer({{FeatureType::kAction, mode}}, features, stats, at::kCPU, at::kDouble);
    Batch batch;
    batch.fields["action"] = actions;
    normalizer.normalize(batch, at::kDouble);
    const bool all = mode == NormalizationMode::kLimits;
    const at::Tensor expected = torch::tensor({{1.0, 0.0, 0.0, all ? 1.0 : 20.0}, {-0.5, 0.5, 0.5, all ? -0.5 : 12.5}}, at::kDouble);
    EXPECT_LE(relative_error(batch.at("action"), expected), 1e-12);
    EXPECT_LE(relative_error(normalizer.unnormalize(batch.at("action")), actions), 1e-12);
  }
}

TEST(Normalizer, LeavesIdentityAndUnknownFeaturesAlone) {
  const Normalizer normalizer({{FeatureType::kState, NormalizationMode::kIdentity}}, test_features(), {}, at::kCPU);
  Batch batch;
  batch.fields["observation.state"] = torch::ones({1, 5});
  batch.fields["other"] = torch::ones({1, 5});
  normalizer.normalize(batch);
  EXPECT_TRUE(batch.at("observation.state").equal(torch::ones({1, 5})));
  EXPECT_TRUE(batch.at("other").equal(torch::ones({1, 5})));
  EXPECT_TRUE(normalizer.unnormalize(torch::ones({2, 3})).equal(torch::ones({2, 3})));
}

// As a batch has them: bytes with channels last, [B, T, C, H, W].
TEST(Normalizer, BytesOfImagesBecomeTheBitsOfNumbersNormalizedStepByStep) {
  const std::string key = "observation.images.left";
  data::DatasetStats stats;
  stats[key] = {{"mean", {{3, 1, 1}, {0.485, 0.456, 0.406}}}, {"std", {{3, 1, 1}, {0.229, 0.224, 0.225}}},
                {"min", {{3, 1, 1}, {0, 0.1, 0.2}}}, {"max", {{3, 1, 1}, {1, 0.9, 0.8}}}};
  for (const auto mode : {NormalizationMode::kMeanStd, NormalizationMode::kMinMax, NormalizationMode::kIdentity}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const at::ScalarType read = dtype == at::kDouble ? at::kDouble : at::kFloat;
      PolicyFeatures features = test_features();
      features.inputs = {{key, FeatureType::kVisual, {3, 6, 4}}};
      const Normalizer normalizer({{FeatureType::kVisual, mode}}, features, stats, test_device(), read);
      for (const int64_t height : {6, 5}) {  // in packs, and an odd count of numbers
        Batch bytes, numbers;
        bytes.fields[key] = torch::randint(256, {3, 1, height, 5, 3}, at::TensorOptions(at::kByte).device(test_device())).movedim(-1, -3);
        numbers.fields[key] = images_to_float(bytes.at(key)).to(read);
        normalizer.normalize(bytes, dtype);
        normalizer.normalize(numbers, dtype);
        EXPECT_EQ(bytes.at(key).scalar_type(), dtype);
        EXPECT_EQ(bytes.at(key).stride(2), 1);
        EXPECT_TRUE(bytes.at(key).equal(numbers.at(key))) << name_of(mode) << " in " << dtype;
      }
    }
  }
}

TEST(Normalizer, LeavesBytesToPoliciesThatTakeThem) {
  Batch batch;
  batch.fields["observation.images.left"] = torch::full({1, 3, 2, 2}, 255, at::kByte);
  const Normalizer normalizer({}, test_features(), {}, at::kCPU);
  normalizer.normalize(batch, at::kBFloat16, /*takes_bytes=*/true);
  EXPECT_EQ(batch.at("observation.images.left").scalar_type(), at::kByte);
  normalizer.normalize(batch, at::kBFloat16);
  EXPECT_TRUE(batch.at("observation.images.left").equal(torch::ones({1, 3, 2, 2}, at::kBFloat16)));
}

TEST(Normalizer, UnusableStatisticsNameFeatureAndStatistic) {
  auto stats = test_stats();
  stats["action"].erase("std");
  EXPECT_THAT(error_with(stats), AllOf(HasSubstr("'action'"), HasSubstr("'std'"), HasSubstr("recompute")));
  stats = test_stats();
  stats.erase("observation.state");
  EXPECT_THAT(error_with(stats), HasSubstr("'observation.state'"));
  stats = test_stats();
  stats["observation.state"]["mean"].values[3] = std::nan("");
  EXPECT_THAT(error_with(stats), AllOf(HasSubstr("'observation.state'"), HasSubstr("'mean'"), HasSubstr("nan"), HasSubstr("element 3")));
  stats = test_stats();
  stats["action"]["mean"] = {{2}, {0, 0}};
  EXPECT_THAT(error_with(stats), AllOf(HasSubstr("[2]"), HasSubstr("[3]")));
}

TEST(Normalizer, StatisticsSurviveTheirSavedForm) {
  const auto stats = with_imagenet_stats(test_stats(), test_features());
  const auto tensors = stats_to_tensors(stats);
  EXPECT_EQ(tensors.at("observation.images.left.mean").sizes(), at::IntArrayRef({3, 1, 1}));
  EXPECT_EQ(tensors.at("observation.state.std").scalar_type(), at::kFloat);
  const auto read = stats_from_tensors(tensors);
  EXPECT_EQ(read.size(), stats.size());
  EXPECT_EQ(read.at("action").at("max").values, stats.at("action").at("max").values);
  EXPECT_EQ(read.at("observation.images.right").at("std").shape, std::vector<int64_t>({3, 1, 1}));
}

TEST(NormalizationMode, NamesAreThoseOfConfigJson) {
  for (const char* name : {"MEAN_STD", "MIN_MAX", "IDENTITY"}) EXPECT_STREQ(name_of(normalization_mode(name)), name);
  EXPECT_THROW(normalization_mode("QUANTILES"), cxxrun::UsageError);
}

}  // namespace
}  // namespace vla
