#include "worker/policies/diffusion/diffusion_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "tests/worker/policies/golden.hpp"

namespace vla {
namespace {

template <class Options>
Options small(const char* type, const std::map<std::string, double>& values = {}) {
  const PolicyEntry* entry = nullptr;
  for (const PolicyEntry& row : policy_registry()) {
    if (std::string(type) == row.name) entry = &row;
  }
  return dynamic_cast<Options&>(*test_options(*entry, values));
}

DiffusionOptions small_diffusion(const std::map<std::string, double>& values = {}) { return small<DiffusionOptions>("diffusion", values); }

std::map<std::string, at::Tensor> gradients_of(Policy& policy, const std::vector<Batch>& parts) {
  policy.zero_grad();
  at::Tensor counts = policy.loss_counts(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) counts += policy.loss_counts(parts[i]);
  for (const Batch& part : parts) policy.compute_loss(part, counts, StepRandom(7, part.step, part.position)).loss.backward();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& entry : policy.named_parameters()) gradients[entry.key()] = entry.value().grad().clone();
  return gradients;
}

double largest_difference(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  double largest = 0, difference = 0;
  for (const auto& [name, tensor] : a) {
    largest = std::max(largest, tensor.abs().max().item<double>());
    difference = std::max(difference, (tensor - b.at(name)).abs().max().item<double>());
  }
  return difference / largest;
}

TEST(DiffusionPolicy, StoresTheConfigurationThatLeRobotReads) {
  const Golden golden("diffusion");
  const DiffusionPolicy policy(dynamic_cast<const DiffusionOptions&>(*golden.config().options), golden.config().features);
  CheckpointFiles files;
  add_pretrained_model(files, "diffusion", policy, {}, "{}");
  const auto stored = nlohmann::json::parse(files.texts.at("pretrained_model/config.json")), reference = golden.json("config.json");
  for (const auto& [key, value] : stored.items()) {
    ASSERT_TRUE(reference.contains(key)) << key << " is unknown to LeRobot";
    EXPECT_EQ(value, reference[key]) << key;
  }
  const std::set<std::string> only_lerobots = {"use_amp", "use_peft", "push_to_hub", "repo_id", "private", "tags", "license",
                                                "pretrained_path", "pretrained_revision", "compile_model", "compile_mode"};
  for (const auto& [key, value] : reference.items()) EXPECT_TRUE(stored.contains(key) || only_lerobots.contains(key)) << key;
}

// A random crop too is the same whoever holds the rows.
TEST(DiffusionPolicy, WithGroupNormsAndCropsMicroBatchesAddUpToTheWholeBatch) {
  const PolicyFeatures features = test_features(64);
  for (const bool shared : {false, true}) {
    for (const bool original : {false, true}) {
      const std::map<std::string, double> values = {{"use_group_norm", 1}, {"use_separate_rgb_encoder_per_camera", shared ? 0 : 1}};
      DiffusionOptions options = original ? small<OriginalDiffusionOptions>("diffusion_policy", values) : small_diffusion(values);
      options.crop_shape = {48, 40};
      torch::manual_seed(1);
      DiffusionPolicy policy(options, features);
      policy.to(at::kDouble);
      const Batch batch = random_batch(options.sample_request(features), features, 3, at::kDouble);
      const auto whole = gradients_of(policy, {batch}), parts = gradients_of(policy, {take_rows(batch, 0, 1, 1), take_rows(batch, 1, 3)});
      EXPECT_LE(largest_difference(whole, parts), 1e-12) << shared << original;
    }
  }
}

TEST(DiffusionPolicy, CropsElsewhereInTheNextStepAndInTheMiddleInEvaluation) {
  const PolicyFeatures features = test_features(64);
  DiffusionOptions options = small_diffusion();
  options.crop_shape = {48, 48};
  torch::nn::Module parent;
  const ObservationEncoder encoder(options, features, parent);
  parent.eval();
  const Batch batch = random_batch(options.sample_request(features), features, 2);
  const auto encoded = [&](int64_t step, bool random) {
    const StepRandom numbers(1, step, batch.position);
    return encoder.encode(batch, random ? &numbers : nullptr, {});
  };
  EXPECT_TRUE(encoded(1, true).equal(encoded(1, true)));
  EXPECT_FALSE(encoded(1, true).equal(encoded(2, true)));
  EXPECT_TRUE(encoded(1, false).equal(encoded(2, false)));
  Batch cut = batch;
  for (const char* camera : {"observation.images.left", "observation.images.right"}) cut.fields[camera] = batch.at(camera).slice(3, 8, 56).slice(4, 8, 56);
  EXPECT_TRUE(encoder.encode(cut, nullptr, {}).equal(encoded(1, false)));
}

TEST(DiffusionPolicy, RecomputingTheUnetGivesTheSameGradients) {
  const PolicyFeatures features = test_features();
  torch::manual_seed(1);
  DiffusionPolicy policy(small_diffusion({{"use_group_norm", 1}}), features);
  const Batch batch = random_batch(policy.options().sample_request(features), features, 2);
  const auto kept = gradients_of(policy, {batch});
  policy.set_activation_checkpointing(true);
  EXPECT_LE(largest_difference(kept, gradients_of(policy, {batch})), 1e-6);
}

TEST(DiffusionOptions, DeriveTheCropFromARatioOfTheResizedImages) {
  DiffusionOptions options;
  options.crop_shape = {50, 60};
  EXPECT_EQ(options.crop(), (std::vector<int64_t>{50, 60}));
  options.resize_shape = {90, 100};
  EXPECT_TRUE(options.crop().empty());
  options.crop_ratio = 0.9;
  EXPECT_EQ(options.crop(), (std::vector<int64_t>{81, 90}));
}

TEST(DiffusionOptions, RefuseWhatDoesNotFit) {
  const auto error = [](const std::function<void(DiffusionOptions&)>& change) -> std::string {
    DiffusionOptions options = small_diffusion();
    change(options);
    try {
      options.validate(test_features());
    } catch (const cxxrun::UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  using testing::HasSubstr;
  EXPECT_EQ(error([](DiffusionOptions&) {}), "no error");
  EXPECT_THAT(error([](DiffusionOptions& o) { o.horizon = 10; }), HasSubstr("policy.horizon = 10 is not divisible by 4"));
  EXPECT_THAT(error([](DiffusionOptions& o) { o.n_action_steps = 8; }), HasSubstr("policy.n_action_steps = 8 is above horizon - n_obs_steps + 1 = 7"));
  EXPECT_THAT(error([](DiffusionOptions& o) { o.crop_shape = {10}; }), HasSubstr("policy.crop_shape = [10]"));
  EXPECT_THAT(error([](DiffusionOptions& o) { o.crop_shape = {49, 10}; }), HasSubstr("larger than the images of 'observation.images.left', 48x48"));
  EXPECT_THAT(error([](DiffusionOptions& o) { o.num_inference_steps = 101; }), HasSubstr("policy.num_inference_steps = 101"));
  EXPECT_THAT(error([](DiffusionOptions& o) { o.use_group_norm = true, o.backbone_weights = "resnet18.safetensors"; }), HasSubstr("policy.backbone_weights"));
}

}  // namespace
}  // namespace vla
