// ACT against LeRobot 0.6.1's own numbers (tests/data/goldens/act; golden.safetensors holds the inputs, weights are a formula of
// their names). Errors are max |a - b| / max |b| of a tensor.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "tests/worker/policies/support.hpp"
#include "worker/checkpoint/safetensors.hpp"
#include "worker/optim/optimizer.hpp"
#include "worker/policies/act/act_policy.hpp"
#include "worker/policies/normalizer.hpp"

namespace vla {
namespace {

constexpr double kTolerance = 1e-5;
const std::string kFolder = std::string(TEST_DATA_DIR) + "/goldens/act/";
// Its input is zero, so its gradient is too: the reference holds rounding noise.
const std::string kNoGradient = "model.decoder.layers.0.self_attn.in_proj_weight";

nlohmann::json read_json(const std::string& name) { return nlohmann::json::parse(std::ifstream(kFolder + name)); }

uint32_t crc32(const std::string& text) {
  uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

// murmur3's finaliser of (crc32 of the name) ^ index, as a number in [-1, 1), scaled by the kind of tensor.
at::Tensor formula(const std::string& name, at::IntArrayRef shape) {
  at::Tensor tensor = torch::empty(shape, at::kFloat);
  auto* values = tensor.data_ptr<float>();
  const uint32_t start = crc32(name);
  const float fan = static_cast<float>(std::sqrt(3.0 / static_cast<double>(c10::multiply_integers(shape.slice(1)))));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    uint32_t x = start ^ static_cast<uint32_t>(i);
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    x ^= x >> 16;
    const float v = static_cast<float>(static_cast<int64_t>(x >> 8) - (1 << 23)) / 8388608.0f;
    const bool around_one = name.ends_with(".weight") || name.ends_with("running_var");
    values[i] = shape.size() >= 2 ? v * fan : around_one ? 1.0f + 0.1f * v : 0.1f * v;
  }
  return tensor;
}

void fill(ActPolicy& policy) {
  const torch::NoGradGuard no_grad;
  for (auto& entry : policy.named_parameters()) entry.value().copy_(formula(entry.key(), entry.value().sizes()));
  for (auto& entry : policy.named_buffers()) {
    if (!entry.key().ends_with("vae_encoder_pos_enc")) entry.value().copy_(formula(entry.key(), entry.value().sizes()));
  }
}

// float64 [10]: sum, sum of absolute values, first eight values.
at::Tensor fingerprint(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).flatten();
  at::Tensor head = torch::zeros({8}, at::kDouble);
  const int64_t count = std::min<int64_t>(8, flat.numel());
  head.slice(0, 0, count).copy_(flat.slice(0, 0, count));
  return at::cat({flat.sum().unsqueeze(0), flat.abs().sum().unsqueeze(0), head});
}

// The sums relative to the sum of absolute values, the first values relative to the tensor's largest.
double fingerprint_error(const at::Tensor& tensor, const at::Tensor& expected) {
  const at::Tensor difference = (fingerprint(tensor) - expected).abs();
  if (difference.max().item<double>() == 0) return 0;
  const double sums = (difference.slice(0, 0, 2).max() / expected[1]).item<double>();
  return std::max(sums, (difference.slice(0, 2).max() / tensor.abs().max()).item<double>());
}

class ActGolden : public testing::Test {
 protected:
  ActGolden() : policy_(options(), features()), golden_(load_safetensors(kFolder + "golden.safetensors")) {
    fill(policy_);
    for (const char* key : {"observation.state", "action"}) batch_.fields[key] = golden(std::string("raw/") + key).clone();
    batch_.fields["observation.image"] =
        golden("raw/observation.image").to(at::kFloat, false, true, at::MemoryFormat::ChannelsLast).div_(torch::tensor(255.0f));
    batch_.fields["action_is_pad"] = golden("raw/action_is_pad").to(at::kBool);
    batch_.weight = torch::ones({2});
    batch_.position = torch::arange(2);
    TensorMap stats;
    for (const auto& [name, tensor] : golden_) {
      if (!name.starts_with("stats/")) continue;
      std::string key = name.substr(6);
      key[key.rfind('/')] = '.';
      stats[key] = tensor;
    }
    normalizer_ = std::make_unique<Normalizer>(policy_.options().normalization(), policy_.features(), stats_from_tensors(stats), at::kCPU);
    normalizer_->normalize(batch_);
  }

  static ActOptions options() {
    ActOptions options;
    cxxrun::OptionTable table;
    options.describe(table);
    const auto config = read_json("config.json");
    for (auto& row : table.rows()) {
      if (!config.contains(row.name)) continue;
      std::visit([&]<class T>(T* value) { *value = config.at(row.name).get<T>(); }, row.value);
    }
    return options;
  }

  static PolicyFeatures features() {
    return {{{"observation.image", data::FeatureType::kVisual, {3, 128, 128}}, {"observation.state", data::FeatureType::kState, {4}}},
            {{"action", data::FeatureType::kAction, {4}}}};
  }

  const at::Tensor& golden(const std::string& name) const { return golden_.at(name); }

  PolicyLoss loss(at::ScalarType dtype = at::kFloat) {
    return policy_.compute_loss_with_noise(batch_, policy_.loss_counts(batch_), golden("rand/vae_noise").to(dtype), nullptr);
  }

  void expect_gradients() {
    std::map<std::string, at::Tensor> gradients;
    for (const auto& entry : policy_.named_parameters()) gradients[entry.key()] = entry.value().grad();
    double worst = 0;
    size_t compared = 0;
    const auto check = [&](const std::string& name, double error) {
      EXPECT_LE(error, kTolerance) << name;
      worst = std::max(worst, error);
      ++compared;
    };
    for (const auto& [name, expected] : golden_) {
      if (!name.starts_with("grad")) continue;
      const std::string parameter = name.substr(name.find('/') + 1);
      ASSERT_TRUE(gradients.contains(parameter)) << parameter;
      if (parameter == kNoGradient) {
        EXPECT_LE(gradients[parameter].abs().max().item<double>(), 1e-6);
      } else if (name.starts_with("grad/")) {
        check(name, relative_error(gradients[parameter], expected));
      } else {
        check(name, fingerprint_error(gradients[parameter], expected));
      }
    }
    EXPECT_EQ(compared, 93u + 73 - 2);
    std::printf("largest relative error of a gradient: %.2g (%zu comparisons)\n", worst, compared);
  }

  Optimizer make_optimizer() { return Optimizer(policy_.parameter_groups(), policy_.options().optimizer_preset()); }

  // Losses before each of five steps; every group's learning rate is the preset's times `lr_factor`.
  void expect_curve(double lr_factor, const std::string& name, at::ScalarType dtype) {
    Optimizer optimizer = make_optimizer();
    optimizer.set_lr_factor(lr_factor);
    for (int64_t step = 0; step < 5; ++step) {
      policy_.zero_grad();
      const at::Tensor value = loss(dtype).loss;
      value.backward();
      EXPECT_LE(relative_error(value, golden(name)[step]), kTolerance) << name << " step " << step;
      optimizer.clip_grad_norm();
      optimizer.step();
    }
  }

  void use_doubles() {
    policy_.to(at::kDouble);
    for (auto& [key, field] : batch_.fields) field = field.is_floating_point() ? field.to(at::kDouble) : field;
  }

  ActPolicy policy_;
  TensorMap golden_;
  Batch batch_;
  std::unique_ptr<Normalizer> normalizer_;
};

TEST_F(ActGolden, StateDictHasTheReferencesNamesAndShapes) {
  std::map<std::string, std::vector<int64_t>> parameters, buffers;
  const auto listing = read_json("tensors.json");
  for (const auto& row : listing.at("tensors")) {
    (row.at("kind") == "param" ? parameters : buffers)[row.at("name")] = row.at("shape").get<std::vector<int64_t>>();
  }
  std::map<std::string, std::vector<int64_t>> own_parameters, own_buffers;
  for (const auto& entry : policy_.named_parameters()) own_parameters[entry.key()] = entry.value().sizes().vec();
  for (const auto& entry : policy_.named_buffers()) own_buffers[entry.key()] = entry.value().sizes().vec();
  EXPECT_EQ(own_parameters, parameters);
  EXPECT_EQ(own_buffers, buffers);
}

TEST_F(ActGolden, InitialWeightsOfASeedAreTheReferences) {
  torch::manual_seed(1000);
  const ActPolicy fresh(options(), features());
  const auto expected = read_json("init_seed1000.json");
  size_t compared = 0;
  const auto compare = [&](const std::string& name, const at::Tensor& tensor) {
    ++compared;
    EXPECT_LE(fingerprint_error(tensor, torch::tensor(expected.at(name).get<std::vector<double>>(), at::kDouble)), 1e-12) << name;
  };
  for (const auto& entry : fresh.named_parameters()) compare(entry.key(), entry.value());
  for (const auto& entry : fresh.named_buffers()) compare(entry.key(), entry.value());
  EXPECT_EQ(compared, expected.size());
}

TEST_F(ActGolden, WeightsOfTheFormulaAreTheReferences) {
  size_t compared = 0;
  const auto compare = [&](const std::string& name, const at::Tensor& tensor) {
    if (!golden_.contains("paramsum/" + name)) return;
    EXPECT_LE(fingerprint_error(tensor, golden("paramsum/" + name)), 1e-12) << name;
    ++compared;
  };
  for (const auto& entry : policy_.named_parameters()) compare(entry.key(), entry.value());
  for (const auto& entry : policy_.named_buffers()) compare(entry.key(), entry.value());
  EXPECT_EQ(compared, 173u);
}

TEST_F(ActGolden, NormalizedBatch) {
  EXPECT_TRUE(batch_.at("action").equal(golden("norm/action")));
  EXPECT_TRUE(batch_.at("observation.state").equal(golden("norm/observation.state")));
  const at::Tensor& image = batch_.at("observation.image");
  EXPECT_TRUE(image.slice(2, 0, 8).slice(3, 0, 8).equal(golden("norm_patch/observation.image")));
  EXPECT_LE(fingerprint_error(image, golden("norm_sum/observation.image")), 1e-9);
}

TEST_F(ActGolden, Activations) {
  const torch::NoGradGuard no_grad;
  ActModel& model = policy_.model();
  EXPECT_LE(relative_error(model.backbone()->forward(batch_.at("observation.image")), golden("out/backbone")), kTolerance);
  const ActPosterior posterior = model.posterior(batch_, nullptr);
  EXPECT_LE(relative_error(at::cat({posterior.mu, posterior.log_sigma_x2}, 1), golden("out/latent_params")), kTolerance);
  const at::Tensor latent = posterior.mu + (posterior.log_sigma_x2 / 2).exp() * golden("rand/vae_noise");
  const ActMemory memory = model.encode(batch_, latent, nullptr);
  EXPECT_LE(relative_error(memory.tokens, golden("out/encoder")), kTolerance);
  EXPECT_LE(relative_error(model.decode(memory, nullptr), golden("out/decoder")), kTolerance);
  EXPECT_LE(relative_error(model.forward(batch_, latent, nullptr), golden("out/actions_hat_train")), kTolerance);
}

TEST_F(ActGolden, LossAndItsParts) {
  const PolicyLoss actual = loss();
  EXPECT_LE(relative_error(actual.loss, golden("out/loss")), kTolerance);
  ASSERT_EQ(actual.metrics.size(), 2u);
  for (const auto& [name, value] : actual.metrics) EXPECT_LE(relative_error(value, golden("out/" + name)), kTolerance) << name;
}

TEST_F(ActGolden, EveryGradientAndTheirNorm) {
  loss().loss.backward();
  expect_gradients();
  EXPECT_LE(relative_error(make_optimizer().clip_grad_norm(), golden("out/grad_norm")), kTolerance);
}

TEST_F(ActGolden, EveryGradientInDoublePrecision) {
  use_doubles();
  loss(at::kDouble).loss.backward();
  expect_gradients();
}

TEST_F(ActGolden, OneOptimizerStep) {
  loss().loss.backward();
  Optimizer optimizer = make_optimizer();
  optimizer.clip_grad_norm();
  optimizer.step();
  size_t compared = 0;
  const auto compare = [&](const std::string& name, const at::Tensor& tensor) {
    if (!golden_.contains("aftersum/" + name) || name == kNoGradient) return;
    EXPECT_LE(fingerprint_error(tensor, golden("aftersum/" + name)), kTolerance) << name;
    if (golden_.contains("after/" + name)) {
      // Softmax ignores a bias of the keys: there Adam's first step is the sign of rounding noise.
      const bool has_keys = name.ends_with("in_proj_bias");
      const auto rest = [&](const at::Tensor& x) { return has_keys ? at::cat({x.slice(0, 0, 64), x.slice(0, 128)}) : x; };
      EXPECT_LE(relative_error(rest(tensor), rest(golden("after/" + name))), kTolerance) << name;
    }
    ++compared;
  };
  for (const auto& entry : policy_.named_parameters()) compare(entry.key(), entry.value());
  for (const auto& entry : policy_.named_buffers()) compare(entry.key(), entry.value());
  EXPECT_EQ(compared, 172u);
}

TEST_F(ActGolden, LossesOfFiveSteps) { expect_curve(1, "losses/preset", at::kFloat); }

// In float32 this curve is chaotic: on one thread instead of two LeRobot itself ends 0.7 % off its own value.
TEST_F(ActGolden, LossesOfFiveStepsAtALargeLearningRateInDoublePrecision) {
  use_doubles();
  expect_curve(100, "losses/lr1e-3", at::kDouble);
}

TEST_F(ActGolden, PredictedChunk) {
  policy_.eval();
  const at::Tensor actions = policy_.predict_chunk(batch_);
  EXPECT_LE(relative_error(actions, golden("out/actions_eval_normalised")), kTolerance);
  EXPECT_LE(relative_error(normalizer_->unnormalize(actions), golden("out/actions_eval")), kTolerance);
}

}  // namespace
}  // namespace vla
