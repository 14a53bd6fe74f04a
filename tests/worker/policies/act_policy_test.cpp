#include "worker/policies/act/act_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "tests/worker/policies/support.hpp"

namespace vla {
namespace {

using testing::HasSubstr;

ActOptions small_options() { return dynamic_cast<ActOptions&>(*test_options(policy_registry().front())); }

TEST(ActPolicy, EvalLossIsL1AloneWithoutNoiseOrDropout) {
  const auto features = test_features();
  ActPolicy policy(small_options(), features);
  policy.eval();
  const Batch batch = random_batch(features, {});
  const PolicyLoss loss = loss_of(policy, batch);
  ASSERT_EQ(loss.metrics.size(), 1u);
  const at::Tensor valid = batch.at("action_is_pad").logical_not().unsqueeze(-1);
  const at::Tensor error = (batch.at("action") - policy.predict_chunk(batch)).abs() * valid;
  EXPECT_NEAR(loss.loss.item<float>(), (error.sum() / (valid.sum() * 3)).item<float>(), 1e-6);
}

TEST(ActPolicy, DropoutChangesWithTheStepOnly) {
  const auto features = test_features();
  ActPolicy policy(small_options(), features);
  policy.train();
  Batch batch = random_batch(features, {});
  const double first = loss_of(policy, batch).loss.item<double>();
  EXPECT_EQ(loss_of(policy, batch).loss.item<double>(), first);
  ++batch.step;
  EXPECT_NE(loss_of(policy, batch).loss.item<double>(), first);
}

TEST(ActPolicy, TrainsTheBackboneAtItsOwnRate) {
  ActOptions options = small_options();
  options.optimizer_lr_backbone = 3e-6;
  ActPolicy policy(options, test_features());
  const auto groups = policy.parameter_groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].lr, 0);
  EXPECT_EQ(groups[1].lr, 3e-6);
  for (const auto& [name, parameter] : groups[1].parameters) EXPECT_THAT(name, HasSubstr("model.backbone."));
}

// Shapes of inputs that LeRobot allows besides cameras of one size and a robot state.
TEST(ActPolicy, WorksWithEveryAllowedSetOfInputs) {
  const PolicyFeature left{"observation.images.left", data::FeatureType::kVisual, {3, 64, 64}};
  const PolicyFeature wide{"observation.images.wide", data::FeatureType::kVisual, {3, 33, 96}};
  const PolicyFeature state{"observation.state", data::FeatureType::kState, {5}};
  const PolicyFeature environment{"observation.environment_state", data::FeatureType::kEnvironment, {7}};
  const std::vector<PolicyFeature> sets[] = {{left, wide, state}, {left}, {environment}, {left, state, environment}};
  for (const auto& inputs : sets) {
    for (const bool pre_norm : {false, true}) {
      const PolicyFeatures features{inputs, test_features().outputs};
      ActOptions options = small_options();
      options.pre_norm = pre_norm;
      options.feedforward_activation = pre_norm ? "gelu" : "relu";
      options.validate(features);
      ActPolicy policy(options, features);
      policy.train();
      const Batch batch = random_batch(features, {.rows = 2});
      loss_of(policy, batch).loss.backward();
      for (const auto& entry : policy.named_parameters()) EXPECT_TRUE(entry.value().grad().defined()) << entry.key();
      EXPECT_EQ(options.sample_request(features).size(), inputs.size() + 1);
    }
  }
}

TEST(ActPolicy, WithoutVaeHasNoVaeParametersAndNoKld) {
  ActOptions options = small_options();
  options.use_vae = false;
  const auto features = test_features();
  ActPolicy policy(options, features);
  policy.train();
  for (const auto& entry : policy.named_parameters()) EXPECT_THAT(entry.key(), testing::Not(HasSubstr("vae")));
  EXPECT_EQ(loss_of(policy, random_batch(features, {})).metrics.size(), 1u);
}

TEST(ActOptions, ImpossibleValuesNameTheKey) {
  const auto error_of = [](auto change, PolicyFeatures features = test_features()) -> std::string {
    ActOptions options = small_options();
    change(options);
    try {
      options.validate(features);
    } catch (const cxxrun::UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of([](ActOptions& o) { o.n_action_steps = 7; }), HasSubstr("policy.n_action_steps = 7"));
  EXPECT_THAT(error_of([](ActOptions& o) { o.n_heads = 5; }), HasSubstr("policy.n_heads = 5"));
  EXPECT_THAT(error_of([](ActOptions& o) { o.dim_model = 34; o.n_heads = 2; }), HasSubstr("policy.dim_model = 34"));
  EXPECT_THAT(error_of([](ActOptions& o) { o.replace_final_stride_with_dilation = true; }), HasSubstr("dilation"));
  const auto nothing = [](ActOptions&) {};
  EXPECT_THAT(error_of(nothing, {{}, test_features().outputs}), HasSubstr("at least one image"));
  EXPECT_THAT(error_of(nothing, {test_features().inputs, {}}), HasSubstr("'action'"));
  PolicyFeatures grey = test_features();
  grey.inputs[0].shape = {1, 64, 64};
  EXPECT_THAT(error_of(nothing, grey), HasSubstr("observation.images.left"));
}

}  // namespace
}  // namespace vla
