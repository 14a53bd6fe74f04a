// SmolVLA against LeRobot 0.6.1's own numbers (tests/data/goldens/smolvla; vlm/ has the sizes of the SmolVLM).
#include <cmath>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/golden.hpp"
#include "worker/optim/optimizer.hpp"
#include "worker/policies/smolvla/smolvla_policy.hpp"

namespace vla {
namespace {

SmolVlaOptions golden_options(const Golden& golden) {
  SmolVlaOptions options = dynamic_cast<const SmolVlaOptions&>(*golden.config().options);
  options.vlm_model_name = TEST_DATA_DIR "/goldens/smolvla/vlm";
  return options;
}

SmolVlaOptions whole_model(SmolVlaOptions options) {
  options.train_expert_only = options.freeze_vision_encoder = false;
  return options;
}

struct SmolVlaGolden : testing::Test {
  explicit SmolVlaGolden(bool whole = false)
      : policy(whole ? whole_model(golden_options(golden)) : golden_options(golden), golden.config().features) {
    policy.train();
    prepare(policy);
    normalizer.normalize(batch);
    for (const char* key : {"observation.language.tokens", "observation.language.attention_mask"}) batch.fields[key] = golden(std::string("raw/") + key);
    random.replace("flow_noise", golden("rand/noise"));
    random.replace("flow_time", ((golden("rand/time").to(at::kDouble) - 0.001) / 0.999).pow(1.5).unsqueeze(1));
    random.replace("sample_noise", golden("rand/sample_start"));
  }

  PolicyLoss loss() { return policy.compute_loss(batch, policy.loss_counts(batch), random); }
  void expect(const at::Tensor& actual, const char* name) { EXPECT_LE(relative_error(actual, golden(name)), kGoldenTolerance) << name; }

  Golden golden{"smolvla"};
  SmolVlaPolicy policy;
  Batch batch = golden.raw_batch();
  Normalizer normalizer = golden.normalizer(policy.options());
  StepRandom random{0, 0, batch.position};
};

// Everything is trained that LeRobot trains with train_expert_only = freeze_vision_encoder = false.
struct WholeSmolVlaGolden : SmolVlaGolden {
  WholeSmolVlaGolden() : SmolVlaGolden(true) {}
  Golden full{"smolvla", "golden_full.safetensors"};
};

// Softmax ignores a bias of the keys: its gradient is rounding noise, of which Adam makes a whole step.
bool is_noise(const std::string& name) { return name.ends_with("self_attn.k_proj.bias"); }

std::set<std::string> trainable(const Policy& policy) {
  std::set<std::string> names;
  for (const auto& entry : policy.named_parameters()) {
    if (entry.value().requires_grad()) names.insert(entry.key());
  }
  return names;
}

TEST_F(SmolVlaGolden, StateDictHasTheReferencesNamesAndShapes) { EXPECT_EQ(expect_same_names(policy, golden.json("tensors.json")), 124u); }

TEST_F(SmolVlaGolden, WeightsOfTheFormulaAreTheReferences) { EXPECT_EQ(expect_formula_weights(policy, golden), 124u); }

TEST_F(SmolVlaGolden, TrainsWhatTheReferenceTrains) {
  std::set<std::string> expected;
  for (const auto& [name, tensor] : golden.tensors()) {
    if (name.starts_with("gradsum/")) expected.insert(name.substr(8));
  }
  EXPECT_EQ(trainable(policy), expected);
}

TEST_F(SmolVlaGolden, NormalizedBatch) {
  EXPECT_TRUE(batch.at("action").equal(golden("norm/action")));
  EXPECT_TRUE(batch.at("observation.state").equal(golden("norm/observation.state")));
  EXPECT_TRUE(batch.at("observation.image").slice(2, 0, 8).slice(3, 0, 8).equal(golden("norm_patch/observation.image")));
}

TEST_F(SmolVlaGolden, Activations) {
  const torch::NoGradGuard no_grad;
  SmolVlaModel& model = policy.model();
  const SmolVlaObservation observation = policy.observe(batch);
  const SmolVlaPrefix prefix = model.embed_prefix(observation);
  expect(model.transformers().embed_images(observation.images), "out/connector");
  expect(at::cat({prefix.scene, prefix.state}, 1), "out/prefix_embs");
  EXPECT_TRUE(prefix.valid.equal(golden("out/prefix_pad_masks").to(at::kBool)));
  // The state begins the only other block of tokens.
  const at::Tensor blocks = golden("out/prefix_att_masks").to(at::kLong).cumsum(1);
  EXPECT_TRUE(blocks.cpu().eq(1).equal((at::arange(blocks.size(1)) >= prefix.scene.size(1)).expand_as(blocks)));
  const at::Tensor noise = golden("rand/noise"), share = golden("rand/time").view({-1, 1, 1});
  const at::Tensor actions = at::constant_pad_nd(batch.at("action"), {0, 4});
  const at::Tensor between = share * noise + (1 - share) * actions;
  expect(model.embed_suffix(between, golden("rand/time")), "out/action_time_mlp_out");
  expect(model.velocity(model.encode(prefix), between, golden("rand/time")), "out/v_t");
}

TEST_F(SmolVlaGolden, LossAndItsParts) {
  const PolicyLoss actual = loss();
  expect(actual.loss, "out/loss");
  ASSERT_EQ(actual.metrics.size(), 3u);
  for (const auto& [name, value] : actual.metrics) expect(value, ("out/" + name).c_str());
}

TEST_F(SmolVlaGolden, EveryGradientAndTheirNorm) {
  loss().loss.backward();
  EXPECT_EQ(expect_gradients(policy, golden), 94u);
  for (const auto& entry : policy.named_parameters()) EXPECT_EQ(entry.value().grad().defined(), entry.value().requires_grad()) << entry.key();
  Optimizer optimizer(policy.parameter_groups(), policy.options().optimizer_preset());
  expect(optimizer.clip_grad_norm(), "out/grad_norm");
}

TEST_F(SmolVlaGolden, GradientsWithRecomputedActivations) {
  policy.set_activation_checkpointing(true);
  loss().loss.backward();
  expect_gradients(policy, golden);
}

TEST_F(SmolVlaGolden, OneOptimizerStep) {
  loss().loss.backward();
  Optimizer optimizer(policy.parameter_groups(), policy.options().optimizer_preset());
  optimizer.clip_grad_norm();
  optimizer.step();
  EXPECT_EQ(expect_after_step(policy, golden), 124u);
}

TEST_F(SmolVlaGolden, LossesOfFiveSteps) {
  expect_losses(policy, [&] { return loss(); }, 1, golden("losses/preset"));
}

TEST_F(SmolVlaGolden, LossesOfFiveStepsAtALargeLearningRate) {
  expect_losses(policy, [&] { return loss(); }, 10, golden("losses/lr1e-3"));
}

TEST_F(SmolVlaGolden, SampledChunk) {
  policy.eval();
  const at::Tensor actions = policy.sample_chunk(batch, random);
  expect(actions, "out/actions_eval_normalised");
  expect(normalizer.unnormalize(actions), "out/actions_eval");
}

TEST_F(WholeSmolVlaGolden, TrainsWhatTheReferenceTrains) {
  EXPECT_EQ(trainable(policy), full.json("trainable_full.json").get<std::set<std::string>>());
}

TEST_F(WholeSmolVlaGolden, LossAndEveryGradient) {
  const PolicyLoss actual = loss();
  EXPECT_LE(relative_error(actual.loss, full("out/loss")), kGoldenTolerance);
  actual.loss.backward();
  EXPECT_EQ(expect_gradients(policy, full, is_noise), 113u + 66 - 4);
}

TEST_F(WholeSmolVlaGolden, GradientsWithRecomputedActivations) {
  policy.set_activation_checkpointing(true);
  loss().loss.backward();
  expect_gradients(policy, full, is_noise);
}

TEST_F(WholeSmolVlaGolden, OneOptimizerStep) {
  loss().loss.backward();
  Optimizer optimizer(policy.parameter_groups(), policy.options().optimizer_preset());
  optimizer.clip_grad_norm();
  optimizer.step();
  EXPECT_EQ(expect_after_step(policy, full, is_noise), 124u);
}

TEST_F(WholeSmolVlaGolden, LossesOfFiveSteps) {
  expect_losses(policy, [&] { return loss(); }, 1, full("losses/preset"));
}

}  // namespace
}  // namespace vla
