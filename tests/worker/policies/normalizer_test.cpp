#include "worker/policies/normalizer.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "tests/worker/policies/support.hpp"

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
  batch.fields["action"] = actions.clone();
  normalizer.normalize(batch);
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
    batch.fields["action"] = actions.clone();
    normalizer.normalize(batch);
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
