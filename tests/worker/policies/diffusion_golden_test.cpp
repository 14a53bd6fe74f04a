// Diffusion policy against LeRobot 0.6.1's own numbers (tests/data/goldens/diffusion).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/golden.hpp"
#include "worker/optim/optimizer.hpp"
#include "worker/policies/diffusion/diffusion_policy.hpp"

namespace vla {
namespace {

// Softmax over the pixels ignores it: its gradient is rounding noise, of which Adam makes whole steps.
bool has_no_gradient(const std::string& name) { return name.ends_with("pool.nets.bias"); }

const std::vector<std::string> kLeft = {"num_batches_tracked", "pool.pos_grid"};

struct DiffusionGolden : testing::Test {
  DiffusionGolden() {
    prepare(*policy, kLeft);
    golden.normalizer(options).normalize(batch);
    random.replace("diffusion_noise", golden("rand/noise"));
    // The middle of the timestep's share of [0, 1).
    random.replace("diffusion_timestep", ((golden("rand/timesteps") + 0.5) / 100).to(at::kFloat).unsqueeze(1));
  }

  void use(const std::function<void(DiffusionOptions&)>& change) {
    change(options);
    policy = std::make_shared<DiffusionPolicy>(options, golden.config().features);
    prepare(*policy, kLeft);
  }

  PolicyLoss loss() { return policy->compute_loss(batch, policy->loss_counts(batch), random); }

  at::Tensor sampled() {
    StepRandom numbers(0, 0, batch.position);
    numbers.replace("sample_start", golden("rand/sample_start"));
    for (int64_t i = 0; i < 10; ++i) numbers.replace("step_noise_" + std::to_string(i), golden("rand/ddpm_step_noise")[i]);
    policy->eval();
    return policy->sample_chunk(batch, numbers);
  }

  double grad_norm() {
    Optimizer optimizer(policy->parameter_groups(), options.optimizer_preset());
    return optimizer.clip_grad_norm().item<double>();
  }

  Golden golden{"diffusion"};
  DiffusionOptions options = dynamic_cast<const DiffusionOptions&>(*golden.config().options);
  std::shared_ptr<DiffusionPolicy> policy = std::make_shared<DiffusionPolicy>(options, golden.config().features);
  Batch batch = golden.raw_batch();
  StepRandom random{0, 0, batch.position};
};

TEST_F(DiffusionGolden, StateDictHasTheReferencesNamesAndShapes) { EXPECT_EQ(expect_same_names(*policy, golden.json("tensors.json")), 225u); }

TEST_F(DiffusionGolden, InitialWeightsOfASeedAreTheReferences) {
  torch::manual_seed(1000);
  const DiffusionPolicy fresh(options, golden.config().features);
  const auto expected = golden.json("init_seed1000.json");
  const auto tensors = named_tensors(fresh);
  for (const auto& [name, tensor] : tensors) {
    // Running statistics have seen a black image. Sums of squares differ in the last digit.
    EXPECT_LE(fingerprint_error(tensor, torch::tensor(expected.at(name).get<std::vector<double>>(), at::kDouble)), 1e-7) << name;
  }
  EXPECT_EQ(tensors.size(), expected.size());
}

TEST_F(DiffusionGolden, WeightsOfTheFormulaAreTheReferences) { EXPECT_EQ(expect_formula_weights(*policy, golden), 204u); }

TEST_F(DiffusionGolden, NormalizedBatch) {
  EXPECT_LE(relative_error(batch.at("action"), golden("norm/action")), 1e-7);
  EXPECT_LE(relative_error(batch.at("observation.state"), golden("norm/observation.state")), 1e-7);
  const at::Tensor& image = batch.at("observation.image");
  EXPECT_TRUE(image.slice(3, 0, 8).slice(4, 0, 8).equal(golden("norm_patch/observation.image")));
  EXPECT_LE(fingerprint_error(image, golden("norm_sum/observation.image")), 1e-9);
}

TEST_F(DiffusionGolden, Activations) {
  const torch::NoGradGuard no_grad;
  const at::Tensor timesteps = golden("rand/timesteps");
  EXPECT_LE(relative_error(policy->unet().step_embedding(timesteps), golden("out/timestep_embedding")), kGoldenTolerance);
  const at::Tensor condition = policy->encoder().encode(batch, nullptr, {});  // [B, observations * (state 4, image 16)]
  const at::Tensor observations = condition.view({2, 2, 20});
  EXPECT_LE(relative_error(observations.slice(2, 4).flatten(0, 1), golden("out/image_features")), kGoldenTolerance);
  EXPECT_TRUE(observations.slice(2, 0, 4).equal(batch.at("observation.state")));
  const NoiseScheduler noise(options.noise);
  EXPECT_TRUE(noise.alphas_cumprod().equal(golden("out/alphas_cumprod").cpu()));
  const at::Tensor output = policy->unet().forward(noise.add_noise(batch.at("action"), golden("rand/noise"), timesteps), timesteps, condition);
  EXPECT_LE(relative_error(output, golden("out/unet_train")), kGoldenTolerance);
}

TEST_F(DiffusionGolden, Loss) { EXPECT_LE(relative_error(loss().loss, golden("out/loss")[0]), kGoldenTolerance); }

TEST_F(DiffusionGolden, EveryGradientAndTheirNorm) {
  loss().loss.backward();
  const double kFloat = std::max(2e-5, kGoldenTolerance);  // the reference is 5e-6 off its value in float64
  EXPECT_EQ(expect_gradients(*policy, golden, has_no_gradient, kFloat), 164u + 104 - 2);
  for (const auto& entry : policy->named_parameters()) {
    if (!has_no_gradient(entry.key())) continue;
    EXPECT_LE(entry.value().grad().abs().max().item<double>(), 1e-7) << entry.key();
  }
  EXPECT_NEAR(grad_norm(), golden("out/grad_norm").item<double>(), kGoldenTolerance * golden("out/grad_norm").item<double>());
}

TEST_F(DiffusionGolden, EveryGradientInDoublePrecision) {
  use_doubles(*policy, batch);
  loss().loss.backward();
  expect_gradients(*policy, golden, has_no_gradient);
}

TEST_F(DiffusionGolden, OneOptimizerStepAndTheRunningStatistics) {
  loss().loss.backward();
  Optimizer optimizer(policy->parameter_groups(), options.optimizer_preset());
  optimizer.clip_grad_norm();
  optimizer.step();
  EXPECT_EQ(expect_after_step(*policy, golden, has_no_gradient), 204u);
}

// LeRobot itself is 0.03 % off its own float32 value on one thread instead of two (at 1e-3): curves are chaotic.
TEST_F(DiffusionGolden, LossesOfFiveSteps) { expect_losses(*policy, [&] { return loss(); }, 1, golden("losses/preset"), 3e-4); }

TEST_F(DiffusionGolden, LossesOfFiveStepsAtALargeLearningRateInDoublePrecision) {
  use_doubles(*policy, batch);
  const auto curve = golden.json("float64.json").at("losses/lr1e-3").get<std::vector<double>>();
  // A GPU's float32 sinusoids differ in their last bit, which five such steps make 7e-7 of.
  expect_losses(*policy, [&] { return loss(); }, 10, torch::tensor(curve, at::kDouble), test_device().is_cpu() ? 1e-9 : 1e-5);
}

TEST_F(DiffusionGolden, SampledByDdpm) {
  const at::Tensor actions = sampled();
  EXPECT_LE(relative_error(actions, golden("out/actions_ddpm_normalised")), kGoldenTolerance);
  EXPECT_LE(relative_error(golden.normalizer(options).unnormalize(actions), golden("out/actions_ddpm")), kGoldenTolerance);
}

TEST_F(DiffusionGolden, SampledByDdim) {
  use([](DiffusionOptions& changed) { changed.noise.type = "DDIM"; });
  EXPECT_LE(relative_error(sampled(), golden("out/actions_ddim_normalised")), kGoldenTolerance);
}

// In float32 another CPU's rounding takes the other side of a maximum or a ReLU near zero here: gradients 0.8 % off.
TEST_F(DiffusionGolden, VariantsInDoublePrecision) {
  const std::map<std::string, std::function<void(DiffusionOptions&)>> variants = {
      {"group_norm", [](DiffusionOptions& changed) { changed.use_group_norm = true; }},
      {"predict_sample", [](DiffusionOptions& changed) { changed.noise.prediction_type = "sample"; }},
      {"masked", [](DiffusionOptions& changed) { changed.do_mask_loss_for_padding = true; }}};
  const DiffusionOptions usual = options;
  for (const auto& [name, change] : variants) {
    options = usual;
    use(change);
    use_doubles(*policy, batch);
    const at::Tensor value = loss().loss;
    value.backward();
    const auto expected = golden.json("float64.json").at("variant/" + name).get<std::vector<double>>();
    const double tolerance = test_device().is_cpu() ? 1e-7 : kGoldenTolerance;
    EXPECT_NEAR(value.item<double>(), expected[0], tolerance * expected[0]) << name;
    size_t compared = 0;
    for (const auto& entry : policy->named_parameters()) {
      const std::string key = "variant/" + name + "/gradsum/" + entry.key();
      if (!golden.has(key)) continue;
      EXPECT_LE(fingerprint_error(entry.value().grad(), golden(key)), kGoldenTolerance) << key;
      ++compared;
    }
    EXPECT_EQ(compared, name == "group_norm" ? 19u : 0u);
    EXPECT_NEAR(grad_norm(), expected[1], tolerance * expected[1]) << name;
  }
}

}  // namespace
}  // namespace vla
