// SmolVLA in fast mode beside its reference mode: the same losses, gradients and actions. With CXXRUN_TEST_DEVICE=cuda, on a GPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "tests/worker/policies/support.hpp"
#include "worker/optim/precision.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/smolvla/smolvla_policy.hpp"

namespace vla {
namespace {

struct SmolVlaFast : testing::Test {
  void SetUp() override { apply_tf32({}); }

  std::shared_ptr<Policy> make(const std::map<std::string, double>& values = {}, at::ScalarType dtype = at::kFloat) {
    torch::manual_seed(5);
    const PolicyEntry& entry = cxxrun::find_in_registry(policy_registry(), "smolvla", "policy.type");
    const auto options = test_options(entry, values);
    auto policy = entry.make(*options, features);
    // The first weights of all are so small that attention and the time hardly matter.
    const torch::NoGradGuard no_grad;
    for (auto& parameter : policy->parameters()) {
      if (parameter.dim() > 1) parameter.mul_(4);
    }
    policy->to(device, dtype);
    policy->train();
    batch = on_device(random_batch(options->sample_request(features), features, 4, at::kFloat), device);
    convert_features(batch, dtype);
    return policy;
  }

  struct Result {
    double loss;
    std::map<std::string, at::Tensor> gradients;
    at::Tensor actions;
  };

  Result run(Policy& policy, bool fast) {
    const FastModeScope mode(fast);
    policy.zero_grad();
    const at::Tensor loss = loss_of(policy, batch).loss;
    loss.backward();
    Result result{loss.item<double>(), gradients_of(policy), {}};
    policy.eval();
    result.actions = policy.predict_chunk(batch);
    policy.train();
    return result;
  }

  void expect_same(Policy& policy, double tolerance) {
    const Result reference = run(policy, false), fast = run(policy, true);
    EXPECT_NEAR(fast.loss, reference.loss, tolerance * std::abs(reference.loss));
    EXPECT_LE(relative_error(fast.actions, reference.actions), tolerance);
    ASSERT_EQ(fast.gradients.size(), reference.gradients.size());
    const double largest = largest_value(reference.gradients);
    for (const auto& [name, gradient] : reference.gradients) {
      ASSERT_TRUE(fast.gradients.contains(name)) << name;
      const at::Tensor difference = (fast.gradients.at(name) - gradient).abs().max();
      EXPECT_LE(difference.item<double>(), tolerance * std::max(gradient.abs().max().item<double>(), 1e-2 * largest)) << name;
    }
  }

  const at::Device device = test_device();
  const double tolerance = device.is_cuda() ? 1e-4 : 1e-5;
  PolicyFeatures features = test_features();
  Batch batch;
};

TEST_F(SmolVlaFast, GivesTheSameLossGradientsAndActions) { expect_same(*make(), tolerance); }

TEST_F(SmolVlaFast, GivesTheSameInDoubles) { expect_same(*make({}, at::kDouble), 1e-10); }

TEST_F(SmolVlaFast, GivesTheSameWithMaskedAndEmptyCameras) {
  const auto policy = make({{"empty_cameras", 1}});
  batch.fields["observation.images.left_padding_mask"] = torch::tensor({1, 0, 1, 0}, at::kBool).to(device);
  expect_same(*policy, tolerance);
}

TEST_F(SmolVlaFast, GivesTheSameWithPaddingOfThePrefix) { expect_same(*make({{"prefix_length", 80}}), tolerance); }

TEST_F(SmolVlaFast, GivesTheSameWhereTheVlmLearns) {
  expect_same(*make({{"train_expert_only", 0}}), tolerance);
  expect_same(*make({{"train_expert_only", 0}, {"freeze_vision_encoder", 0}}), tolerance);
}

TEST_F(SmolVlaFast, GivesTheSameWithoutATrainedStateAndWithFewerExpertLayers) {
  expect_same(*make({{"train_state_proj", 0}}), tolerance);
  expect_same(*make({{"num_expert_layers", 2}, {"self_attn_every_n_layers", 3}}), tolerance);
}

TEST_F(SmolVlaFast, GivesTheSameFromFrozenFeaturesAsFromImages) {
  for (const FrozenLevel level : {FrozenLevel::kVision, FrozenLevel::kPrefix}) {
    for (const bool fast : {false, true}) {
      const bool connector_learns = level == FrozenLevel::kVision && fast;
      const auto policy = make({{"empty_cameras", 1}, {"train_expert_only", connector_learns ? 0 : 1}});
      const Result whole = run(*policy, fast);
      const FastModeScope mode(fast);
      const at::Tensor features = policy->frozen_features(level, batch);
      EXPECT_FALSE(features.requires_grad());
      const Batch with_images = batch;
      for (const char* camera : {"left", "right"}) batch.fields.erase(std::string("observation.images.") + camera);
      batch.fields[frozen_key(level)] = features;
      const Result cached = run(*policy, fast);
      batch = with_images;
      EXPECT_NEAR(cached.loss, whole.loss, tolerance * whole.loss) << name_of(level);
      ASSERT_EQ(cached.gradients.size(), whole.gradients.size());
      for (const auto& [name, gradient] : whole.gradients) {
        EXPECT_LE((cached.gradients.at(name) - gradient).abs().max().item<double>(), tolerance * std::max(1e-2 * largest_value(whole.gradients), gradient.abs().max().item<double>())) << name;
      }
    }
  }
}

TEST_F(SmolVlaFast, RefusesToCacheWhatLearns) {
  EXPECT_THROW(make({{"train_expert_only", 0}, {"freeze_vision_encoder", 0}})->frozen_features(FrozenLevel::kVision, batch), cxxrun::UsageError);
  EXPECT_THROW(make({{"train_expert_only", 0}})->frozen_features(FrozenLevel::kPrefix, batch), cxxrun::UsageError);
  EXPECT_NO_THROW(make({{"train_expert_only", 0}})->frozen_features(FrozenLevel::kVision, batch));
  EXPECT_THROW(make({{"prefix_length", 80}})->frozen_features(FrozenLevel::kPrefix, batch), cxxrun::UsageError);
}

// Weights that are written to after the first step count.
TEST_F(SmolVlaFast, SeesNewWeightsOfFrozenParts) {
  const auto policy = make();
  run(*policy, true);
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : policy->parameters()) parameter.mul_(0.9);
  }
  expect_same(*policy, tolerance);
}

TEST_F(SmolVlaFast, PointsTheSameWayInBfloat16) {
  const Result exact = run(*make(), false);
  const auto policy = make({}, at::kBFloat16);
  const Result fast = run(*policy, true);
  EXPECT_NEAR(fast.loss, exact.loss, 0.02 * exact.loss);
  size_t compared = 0;
  for (const auto& [name, gradient] : exact.gradients) {
    const at::Tensor own = fast.gradients.at(name).to(at::kFloat).flatten();
    EXPECT_GE(at::cosine_similarity(own, gradient.flatten(), 0).item<double>(), 0.97) << name;
    ++compared;
  }
  EXPECT_GT(compared, 40u);
}

TEST_F(SmolVlaFast, IsCloseUnderAutocast) {
  const auto policy = make();
  const Result exact = run(*policy, false);
  const AutocastGuard autocast(make_precision("bf16-mixed", at::kFloat, device), device);
  const FastModeScope mode(true);
  EXPECT_NEAR(loss_of(*policy, batch).loss.item<double>(), exact.loss, 0.02 * exact.loss);
}

}  // namespace
}  // namespace vla
