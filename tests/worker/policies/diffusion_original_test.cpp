// The original's reading of diffusion policy against real-stanford/diffusion_policy's own numbers, in RoboTwin's configuration
// (tests/data/goldens/dp).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/golden.hpp"
#include "worker/image_ops.hpp"
#include "worker/optim/ema.hpp"
#include "worker/optim/optimizer.hpp"
#include "worker/policies/diffusion/diffusion_policy.hpp"

namespace vla {
namespace {

constexpr double kNormTolerance = 1e-4;  // the reference adds up millions of squares in float32
constexpr char kCamera[] = "observation.images.head_camera";

struct OriginalGolden : testing::Test {
  OriginalGolden() {
    prepare(*policy);
    const int64_t observations = options.n_obs_steps;
    batch.fields[kCamera] = images_to_float(golden("in/head_cam").slice(1, 0, observations));
    batch.fields["observation.state"] = golden("in/agent_pos").slice(1, 0, observations).clone();
    batch.fields["action"] = golden("in/action").clone();
    batch.weight = torch::ones({2}, test_device());
    batch.position = torch::arange(2, test_device());
    normalizer.normalize(batch);
    random = StepRandom(0, 0, batch.position);
    random.replace("diffusion_noise", golden("rand/noise"));
    random.replace("diffusion_timestep", ((golden("rand/timesteps") + 0.5) / 100).to(at::kFloat).unsqueeze(1));
    // The reference never draws the last place of a crop; here it is as likely as the others, so the recorded places are given.
    const at::Tensor places = (golden("out/crop_offsets") + 0.5) / torch::tensor({40 - 32 + 1, 48 - 40 + 1}, test_device());
    random.replace(std::string("diffusion_crop.") + kCamera, places.to(at::kFloat).view({2, observations, 2}));
  }

  void use(const std::function<void(DiffusionOptions&)>& change) {
    change(options);
    policy = std::make_shared<DiffusionPolicy>(options, golden.config().features);
    prepare(*policy);
  }

  PolicyLoss loss() { return policy->compute_loss(batch, policy->loss_counts(batch), random); }

  at::Tensor sampled() {
    StepRandom numbers(0, 0, batch.position);
    numbers.replace("sample_start", golden("rand/sample_start"));
    for (int64_t i = 0; i < 99; ++i) numbers.replace("step_noise_" + std::to_string(i), golden("rand/ddpm_step_noise")[i]);
    policy->eval();
    return normalizer.unnormalize(policy->sample_chunk(batch, numbers));
  }

  double grad_norm() {
    double sum = 0;
    for (const at::Tensor& parameter : policy->parameters()) sum += parameter.grad().to(at::kDouble).square().sum().item<double>();
    return std::sqrt(sum);
  }

  static data::DatasetStats stats() {
    TensorMap tensors;
    for (const auto& [name, tensor] : load_safetensors(std::string(TEST_DATA_DIR) + "/goldens/dp/data.safetensors")) {
      const std::string prefix = "normalizer_limits/", input = ".input_stats.";
      const size_t at = name.find(input);
      if (!name.starts_with(prefix) || at == std::string::npos) continue;
      const std::string key = name.substr(prefix.size(), at - prefix.size());
      tensors[(key == "agent_pos" ? "observation.state" : key) + "." + name.substr(at + input.size())] = tensor;
    }
    return stats_from_tensors(tensors);
  }

  Golden golden{"dp"};
  DiffusionOptions options = dynamic_cast<const DiffusionOptions&>(*golden.config().options);
  std::shared_ptr<DiffusionPolicy> policy = std::make_shared<DiffusionPolicy>(options, golden.config().features);
  Normalizer normalizer{options.normalization(), golden.config().features, stats(), test_device()};
  Batch batch;
  StepRandom random{0, 0, {}};
};

TEST_F(OriginalGolden, StateDictHasTheReferencesNamesAndShapes) {
  nlohmann::json listing = golden.json("tensors.json");
  auto& rows = listing["tensors"];
  // Not of the network: a checkpoint of ours has the statistics beside the weights.
  std::erase_if(rows.get_ref<nlohmann::json::array_t&>(), [](const auto& row) {
    const auto name = row.at("name").template get<std::string>();
    return name.starts_with("normalizer.") || name.ends_with("_dummy_variable");
  });
  EXPECT_EQ(expect_same_names(*policy, listing), 208u);
}

TEST_F(OriginalGolden, WeightsOfTheFormulaAreTheReferences) { EXPECT_EQ(expect_formula_weights(*policy, golden), 208u); }

// The reference's sampler starts windows before an episode's first frame and ends them after its last: here a sample is the window's
// frame n_obs_steps - 1.
TEST_F(OriginalGolden, SamplesAreTheReferencesWindows) {
  const TensorMap expected = load_safetensors(std::string(TEST_DATA_DIR) + "/goldens/dp/data.safetensors");
  const auto dataset = data::open_dataset({.root = std::string(TEST_DATA_DIR) + "/goldens/dp/demo.zarr"});
  options.n_action_steps = 6;
  EXPECT_EQ(options.drop_n_last_frames(), options.horizon - options.n_obs_steps - options.n_action_steps + 1);
  const data::SampleRequest request = options.sample_request(golden.config().features);
  const data::SampleLayout layout = dataset->layout(request);
  const auto reader = dataset->open_reader(request);
  const at::Tensor& windows = expected.at("indices");  // [samples, 4]: first and last frame of the buffer, their places in the window
  ASSERT_EQ(dataset->size(), windows.size(0));
  for (int64_t sample = 0; sample < dataset->size(); ++sample) {
    std::map<std::string, at::Tensor> fields;
    std::vector<std::byte*> destination;
    for (const data::Field& field : layout.fields) {
      std::vector<int64_t> shape = field.shape;
      const at::ScalarType dtype = field.dtype == data::DType::kFloat32 ? at::kFloat : field.dtype == data::DType::kInt64 ? at::kLong : at::kByte;
      at::Tensor& tensor = fields[field.key] = torch::empty(shape, dtype);
      destination.push_back(static_cast<std::byte*>(tensor.data_ptr()));
    }
    reader->read(sample, destination);
    const at::Tensor place = torch::arange(8);
    const at::Tensor is_pad = (place < windows[sample][2]).logical_or(place >= windows[sample][3]);
    EXPECT_TRUE(fields.at("action_is_pad").to(at::kBool).equal(is_pad)) << sample;
    const std::string name = "sample" + std::to_string(sample) + "/";
    if (!expected.contains(name + "action")) continue;
    EXPECT_TRUE(fields.at("action").equal(expected.at(name + "action"))) << sample;
    EXPECT_TRUE(fields.at("observation.state").equal(expected.at(name + "state").slice(0, 0, 3))) << sample;
    EXPECT_TRUE(fields.at(kCamera).slice(1, 0, 4).slice(2, 0, 4).permute({0, 3, 1, 2}).equal(expected.at(name + "head_camera").slice(0, 0, 3))) << sample;
  }
}

TEST_F(OriginalGolden, NormalizedBatch) {
  EXPECT_LE(relative_error(batch.at("observation.state"), golden("norm/agent_pos").slice(1, 0, 3)), 1e-6);
  EXPECT_LE(relative_error(batch.at("action"), golden("norm/action")), 1e-6);
}

TEST_F(OriginalGolden, Activations) {
  const torch::NoGradGuard no_grad;
  const at::Tensor timesteps = golden("rand/timesteps");
  EXPECT_LE(relative_error(policy->unet().step_embedding(timesteps), golden("out/step_embedding")), kGoldenTolerance);
  const at::Tensor condition = policy->encoder().encode(batch, &random, {});
  EXPECT_LE(relative_error(condition, golden("out/global_cond")), kGoldenTolerance);
  const NoiseScheduler noise(options.noise);
  const at::Tensor output = policy->unet().forward(noise.add_noise(batch.at("action"), golden("rand/noise"), timesteps), timesteps, condition);
  EXPECT_LE(relative_error(output, golden("out/pred").view_as(output)), kGoldenTolerance);
}

TEST_F(OriginalGolden, LossAndEveryGradient) {
  const at::Tensor value = loss().loss;
  EXPECT_LE(relative_error(value, golden("out/loss")[0]), kGoldenTolerance);
  value.backward();
  EXPECT_EQ(expect_gradients(*policy, golden, nullptr, std::max(2e-5, kGoldenTolerance)), 208u + 136);  // the reference is 4e-6 off its value in float64
  EXPECT_NEAR(grad_norm(), golden("out/grad_norm").item<double>(), kNormTolerance * golden("out/grad_norm").item<double>());
}

TEST_F(OriginalGolden, EveryGradientInDoublePrecision) {
  use_doubles(*policy, batch);
  loss().loss.backward();
  expect_gradients(*policy, golden);
}

TEST_F(OriginalGolden, OneOptimizerStep) {
  loss().loss.backward();
  Optimizer optimizer(policy->parameter_groups(), options.optimizer_preset());
  optimizer.clip_grad_norm();
  optimizer.step();
  EXPECT_EQ(expect_after_step(*policy, golden), 208u);
}

TEST_F(OriginalGolden, LossesOfFiveSteps) {
  expect_losses(*policy, [&] { return loss(); }, 1, golden("losses/preset"));
  prepare(*policy);
  expect_losses(*policy, [&] { return loss(); }, 10, golden("losses/lr1e-3"), 1e-4);
}

TEST_F(OriginalGolden, AveragedWeightsOfThreeSteps) {
  EmaOptions ema_options;
  ema_options.type = "diffusion_policy";
  Ema ema(*policy, ema_options);
  Optimizer optimizer(policy->parameter_groups(), options.optimizer_preset());
  optimizer.set_lr_factor(10);
  for (int64_t step = 0; step < 3; ++step) {
    policy->zero_grad();
    loss().loss.backward();
    optimizer.step();
    ema.update(step + 1);
  }
  size_t compared = 0;
  for (const auto& [name, average] : ema.shadow()) {
    if (!golden.has("ema3sum/" + name)) continue;
    EXPECT_LE(fingerprint_error(average, golden("ema3sum/" + name)), 1e-4) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 208u);
}

TEST_F(OriginalGolden, SampledByDdpmInAHundredSteps) {
  EXPECT_LE(relative_error(sampled(), golden("out/ddpm_action")), kGoldenTolerance);
}

TEST_F(OriginalGolden, SampledByDdimInTenSteps) {
  use([](DiffusionOptions& changed) {
    changed.noise.type = "DDIM";
    changed.num_inference_steps = 10;
  });
  EXPECT_LE(relative_error(sampled(), golden("out/ddim_action")), kGoldenTolerance);
}

TEST_F(OriginalGolden, Variants) {
  const std::map<std::string, std::function<void(DiffusionOptions&)>> variants = {
      {"no_crop", [](DiffusionOptions& changed) { changed.crop_shape.clear(); }},
      {"sample", [](DiffusionOptions& changed) { changed.noise.prediction_type = "sample"; }}};
  const DiffusionOptions usual = options;
  for (const auto& [name, change] : variants) {
    options = usual;
    use(change);
    const at::Tensor value = loss().loss;
    EXPECT_LE(relative_error(value, golden("variant/" + name + "/loss")[0]), kGoldenTolerance) << name;
    value.backward();
    const double expected = golden("variant/" + name + "/grad_norm").item<double>();
    EXPECT_NEAR(grad_norm(), expected, kNormTolerance * expected) << name;
  }
}

}  // namespace
}  // namespace vla
