// What SmolVLA does beyond the recorded case of LeRobot's: cameras, experts of another depth, 16-bit layout, tokens, files.
#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/worker/policies/golden.hpp"
#include "worker/policies/smolvla/smolvla_policy.hpp"

namespace vla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kFolder = TEST_DATA_DIR "/goldens/smolvla";
const std::string kTiny = TEST_DATA_DIR "/tiny_smolvlm";  // with a tokenizer

// The formula of weights as numbers in [0, 1).
at::Tensor images_by_formula(const char* name, at::IntArrayRef shape) {
  torch::nn::Module holder;
  const at::Tensor image = holder.register_parameter(name, torch::empty(shape), /*requires_grad=*/false);
  fill_by_formula(holder);
  return image * (0.5 * std::sqrt(static_cast<double>(c10::multiply_integers(shape.slice(1))) / 3)) + 0.5;
}

// Of scripts/reference/make_smolvla_golden.py.
struct SmolVla : testing::Test {
  SmolVla() {
    take("");
    for (const char* camera : {"front", "wrist"}) {
      at::Tensor& image = batch.fields[std::string("observation.images.") + camera];
      image = image.to(at::kFloat) / 255.0f;
    }
    options.vlm_model_name = kFolder + "/vlm";
    options.chunk_size = options.n_action_steps = 8;
    options.max_state_dim = options.max_action_dim = 8;
    options.resize_imgs_with_padding = {64, 64};
    options.num_steps = options.num_vlm_layers = 4;
  }

  // The batch and the random numbers stored under `place`.
  void take(const std::string& place) {
    for (const auto& [name, tensor] : tensors) {
      if (name.starts_with(place + "batch/")) batch.fields[name.substr(place.size() + 6)] = tensor;
    }
    const int64_t rows = batch.at("action").size(0);
    batch.fields["action_is_pad"] = batch.at("action_is_pad").to(at::kBool);
    batch.weight = torch::ones({rows});
    batch.position = torch::arange(rows);
    random = StepRandom(0, 0, batch.position);
    random.replace("flow_noise", tensors.at(place + "rand/noise"));
    random.replace("flow_time", ((tensors.at(place + "rand/time").to(at::kDouble) - 0.001) / 0.999).pow(1.5).unsqueeze(1));
    random.replace("sample_noise", tensors.at(place + "rand/start"));
  }

  std::shared_ptr<SmolVlaPolicy> make(int64_t cameras = 2) {
    PolicyFeatures features;
    for (const char* camera : {"front", "wrist", "side"}) {
      if (cameras-- > 0) features.inputs.push_back({std::string("observation.images.") + camera, data::FeatureType::kVisual, {3, 50, 90}});
    }
    features.inputs.push_back({"observation.state", data::FeatureType::kState, {5}});
    features.outputs.push_back({"action", data::FeatureType::kAction, {3}});
    auto policy = std::make_shared<SmolVlaPolicy>(options, features);
    policy->train();
    fill_by_formula(*policy);
    return policy;
  }

  at::Tensor loss(SmolVlaPolicy& policy) { return policy.compute_loss(batch, policy.loss_counts(batch), random).loss; }
  const at::Tensor& expected(const std::string& name) { return tensors.at(name); }

  void expect_gradient_sums(SmolVlaPolicy& policy, const std::string& place) {
    size_t compared = 0;
    for (const auto& entry : policy.named_parameters()) {
      const auto found = tensors.find(place + entry.key());
      ASSERT_EQ(entry.value().requires_grad(), found != tensors.end()) << entry.key();
      if (found == tensors.end()) continue;
      EXPECT_LE(fingerprint_error(entry.value().grad(), found->second), kGoldenTolerance) << entry.key();
      ++compared;
    }
    EXPECT_GT(compared, 40u);
  }

  TensorMap tensors = load_safetensors(kFolder + "/variants.safetensors");
  Batch batch;
  StepRandom random{0, 0, torch::arange(2)};
  SmolVlaOptions options;
};

TEST_F(SmolVla, CamerasOfOddSizesMaskedMissingAndEmpty) {
  options.empty_cameras = 1;
  options.prefix_length = 70;
  const auto policy = make(3);
  const at::Tensor value = loss(*policy);
  EXPECT_LE(relative_error(value, expected("cameras/out/loss")), kGoldenTolerance);
  value.backward();
  expect_gradient_sums(*policy, "cameras/gradsum/");
  policy->eval();
  EXPECT_LE(relative_error(policy->sample_chunk(batch, random), expected("cameras/out/actions")), kGoldenTolerance);
}

TEST_F(SmolVla, ImagesBetweenSpecialTokens) {
  options.empty_cameras = 1;
  options.add_image_special_tokens = true;
  options.vlm_model_name = kTiny;
  const auto policy = make(3);
  const at::Tensor value = loss(*policy);
  EXPECT_LE(relative_error(value, expected("frames/out/loss")), kGoldenTolerance);
  value.backward();
  expect_gradient_sums(*policy, "frames/gradsum/");
  policy->eval();
  EXPECT_LE(relative_error(policy->sample_chunk(batch, random), expected("frames/out/actions")), kGoldenTolerance);
}

TEST_F(SmolVla, ExpertOfFewerLayers) {
  options.num_expert_layers = 2;
  options.self_attn_every_n_layers = 3;
  options.train_expert_only = false;
  const auto policy = make();
  const at::Tensor value = loss(*policy);
  EXPECT_LE(relative_error(value, expected("expert/out/loss")), kGoldenTolerance);
  value.backward();
  expect_gradient_sums(*policy, "expert/gradsum/");
}

// LeRobot's layout when it loads a SmolVLM's weights. Here they are not read, but the formula's are put in their place.
TEST_F(SmolVla, MixedLayoutIsCloseToTheReferences) {
  take("many/");
  batch.fields["observation.images.front"] = images_by_formula("front", {16, 3, 50, 90});
  batch.fields["observation.images.wrist"] = images_by_formula("wrist", {16, 3, 41, 33});
  options.vlm_dtype = "bfloat16";
  const auto policy = make();
  for (auto& entry : policy->named_parameters()) {
    ASSERT_EQ(entry.value().requires_grad(), tensors.contains("mixed/grad/" + entry.key())) << entry.key();
    if (entry.value().dim() > 1 && entry.key().find("vlm_with_expert") != std::string::npos) entry.value().data().mul_(0.5);
  }
  const at::Tensor value = loss(*policy);
  EXPECT_LE(relative_error(value, expected("mixed/out/loss")), 1e-3);
  value.backward();
  double least = 1;
  for (const auto& entry : policy->named_parameters()) {
    if (!entry.value().requires_grad()) continue;
    const at::Tensor ours = entry.value().grad().to(at::kDouble).flatten(), theirs = expected("mixed/grad/" + entry.key()).to(at::kDouble).flatten();
    least = std::min(least, (ours.dot(theirs) / (ours.norm() * theirs.norm())).item<double>());
  }
  std::printf("relative error of the loss %.2g, least cosine of a gradient %.6f\n", relative_error(value, expected("mixed/out/loss")), least);
  EXPECT_GE(least, 0.999);
  policy->eval();
  EXPECT_LE(relative_error(policy->sample_chunk(batch, random), expected("mixed/out/actions")), 1e-2);
}

TEST_F(SmolVla, SamplingWithoutCacheGivesTheSame) {
  const at::Tensor with = make()->sample_chunk(batch, random);
  options.use_cache = false;
  EXPECT_LE(relative_error(make()->sample_chunk(batch, random), with), 1e-6);
}

TEST_F(SmolVla, LossesOfOlderVersions) {
  const auto policy = make();
  const torch::NoGradGuard no_grad;
  const at::Tensor newest = loss(*policy), counts = policy->loss_counts(batch);
  options.loss_version = "0.5.1";  // the same sum over all actions, 3 of 16 of them padding
  EXPECT_LE(relative_error(loss(*make()), newest * 13 / 16), 1e-6);
  options.loss_version = "0.5.0";
  const PolicyLoss oldest = make()->compute_loss(batch, counts, random);
  EXPECT_GT(relative_error(oldest.loss, newest), 0.01);
  // Without padding of actions, and none of their size, all are one.
  batch.fields["action_is_pad"] = torch::zeros_like(batch.at("action_is_pad"));
  EXPECT_LE(relative_error(loss(*make()), make()->compute_loss(batch, counts, random).loss), 1e-6);
}

TEST_F(SmolVla, TasksAreTokenizedOnceAndTakenByTheirIndex) {
  options.vlm_model_name = kTiny;
  const auto policy = make();
  for (const char* key : {"observation.language.tokens", "observation.language.attention_mask"}) batch.fields.erase(key);
  batch.fields["task_index"] = torch::tensor({2, 0}, at::kLong);
  EXPECT_THROW(loss(*policy), cxxrun::DataError);
  const std::vector<std::string> tasks = {"push", "pick up the red block and put it into the box\n", "open the drawer"};
  policy->set_tasks(tasks);
  const SmolVlaObservation by_index = policy->observe(batch);
  const TaskTokens alone = TaskTokenizer(*options.text_processor()).tokenize({"open the drawer\n", "push\n"});  // as the batch's rows
  const int64_t length = alone.tokens.size(1);
  ASSERT_LT(length, by_index.tokens.size(1));
  EXPECT_TRUE(by_index.tokens.slice(1, 0, length).equal(alone.tokens));
  EXPECT_TRUE(by_index.token_valid.slice(1, 0, length).equal(alone.valid));
  EXPECT_FALSE(by_index.token_valid.slice(1, length).any().item<bool>());

  const at::Tensor padded_to_longest_of_all = loss(*policy);
  policy->set_tasks({tasks[0], tasks[0], tasks[2]});
  EXPECT_LE(relative_error(loss(*policy), padded_to_longest_of_all), 1e-6);
}

TEST_F(SmolVla, ATokenizerOfAnotherModelIsAnError) {
  cxxrun::TempDir folder;
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) std::filesystem::copy(kTiny + "/" + file, folder.path());
  auto config = nlohmann::json::parse(cxxrun::read_file(kFolder + "/vlm/config.json"));
  config["text_config"]["vocab_size"] = 5;
  cxxrun::write_file_atomically(folder.path() / "config.json", config.dump());
  options.vlm_model_name = folder.path();
  EXPECT_THROW(make()->set_tasks({"push"}), cxxrun::Error);
}

TEST_F(SmolVla, MorePaddingOfTasksChangesNothing) {
  const auto policy = make();
  policy->to(at::kDouble);
  for (auto& [key, field] : batch.fields) field = field.is_floating_point() ? field.to(at::kDouble) : field;
  const at::Tensor before = loss(*policy);
  for (const char* key : {"observation.language.tokens", "observation.language.attention_mask"}) {
    batch.fields[key] = at::constant_pad_nd(batch.at(key), {0, 9});
  }
  EXPECT_LE(relative_error(loss(*policy), before), 1e-12);
}

TEST_F(SmolVla, CastsKeepTheMixedLayoutInFloat32Only) {
  options.vlm_dtype = "bfloat16";
  const auto policy = make();
  const auto dtype = [&](const char* name) { return policy->named_parameters()[std::string("model.") + name].scalar_type(); };
  const char* const kVlm = "vlm_with_expert.vlm.model.text_model.layers.0.mlp.up_proj.weight";
  const char* const kExpert = "vlm_with_expert.lm_expert.layers.1.self_attn.q_proj.weight";
  const char* const kCrossKey = "vlm_with_expert.lm_expert.layers.1.self_attn.k_proj.weight";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(dtype(kVlm), at::kBFloat16);
    EXPECT_EQ(dtype(kExpert), at::kBFloat16);
    EXPECT_EQ(dtype(kCrossKey), at::kFloat);
    EXPECT_EQ(dtype("state_proj.weight"), at::kFloat);
    policy->to(at::kDouble);
    EXPECT_EQ(dtype(kVlm), at::kDouble);
    policy->to(at::kCPU, at::kFloat);
  }
}

// LeRobot's default policy, whose SmolVLM's sizes are known without its files.
TEST_F(SmolVla, FullSizeHasTheReferencesParameters) {
  const PolicyFeatures features = make()->features();
  const SmolVlaPolicy policy(SmolVlaOptions{}, features);
  int64_t parameters = 0, trainable = 0;
  for (const auto& parameter : policy.parameters()) {
    parameters += parameter.numel();
    trainable += parameter.requires_grad() ? parameter.numel() : 0;
  }
  EXPECT_EQ(policy.parameters().size(), 500u);
  EXPECT_EQ(parameters, 450'046'176);
  EXPECT_EQ(trainable, 99'880'992);
}

TEST_F(SmolVla, LoadsTheSmolVlmsOwnWeightsAndLeavesLayersOut) {
  cxxrun::TempDir folder;
  std::filesystem::copy(kFolder + "/vlm/config.json", folder.path());
  options.num_vlm_layers = -1;
  TensorMap weights;
  constexpr std::string_view kVlm = "model.vlm_with_expert.vlm.";
  for (const auto& entry : make()->named_parameters()) {
    if (entry.key().starts_with(kVlm)) weights[entry.key().substr(kVlm.size())] = entry.value();
  }
  save_safetensors(folder.path() / "model.safetensors", weights);
  options.vlm_model_name = folder.path();
  options.load_vlm_weights = true;
  options.num_vlm_layers = 2;
  const PolicyFeatures features = make()->features();
  const auto load = [&] { return std::make_shared<SmolVlaPolicy>(options, features); };
  const auto policy = load();
  size_t compared = 0;
  for (const auto& entry : policy->named_parameters()) {
    if (!entry.key().starts_with(kVlm)) continue;
    EXPECT_TRUE(entry.value().equal(weights.at(entry.key().substr(kVlm.size())).to(at::kBFloat16))) << entry.key();
    ++compared;
  }
  EXPECT_EQ(compared, weights.size() - 2 * 9);

  weights.erase("lm_head.weight");
  save_safetensors(folder.path() / "model.safetensors", weights);
  EXPECT_THROW(load(), cxxrun::Error);
  std::filesystem::remove(folder.path() / "model.safetensors");
  EXPECT_THROW(load(), cxxrun::UsageError);
  options.weights_follow = true;
  EXPECT_NO_THROW(load());
}

TEST_F(SmolVla, SizesThatDoNotFitAreErrorsThatNameTheKey) {
  const auto error = [&] {
    try {
      make();
    } catch (const cxxrun::Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  options.num_expert_layers = 2;
  EXPECT_THAT(error(), AllOf(HasSubstr("policy.num_expert_layers = 2"), HasSubstr("self_attn_every_n_layers = 2")));
  options.num_expert_layers = 3;
  EXPECT_THAT(error(), HasSubstr("policy.num_expert_layers = 3 does not divide the 4 layers"));
  options.num_expert_layers = -1;
  options.resize_imgs_with_padding = {64, 72};
  EXPECT_THAT(error(), AllOf(HasSubstr("policy.resize_imgs_with_padding = [64, 72]"), HasSubstr("multiple of 16")));

  options.resize_imgs_with_padding = {64, 64};
  cxxrun::TempDir folder;
  options.vlm_model_name = folder.path();
  const auto config_error = [&](const char* text) {
    cxxrun::write_file_atomically(folder.path() / "config.json", text);
    return error();
  };
  EXPECT_THAT(config_error(R"({"text_config": {"hidden_size": -5}})"), AllOf(HasSubstr("config.json: text_config.hidden_size = -5")));
  EXPECT_THAT(config_error(R"({"text_config": {"num_hidden_layers": 1e30}})"), HasSubstr("text_config.num_hidden_layers"));
  EXPECT_THAT(config_error(R"({"vision_config": 7})"), HasSubstr("vision_config is not an object"));
  EXPECT_THAT(config_error(R"({"vision_config": {"hidden_act": "relu"}})"), HasSubstr("vision_config.hidden_act"));
  EXPECT_THAT(config_error(R"({"scale_factor": true})"), HasSubstr("scale_factor = true"));
  options.vlm_model_name = "somebody/unknown-model";
  EXPECT_THAT(error(), HasSubstr("somebody/unknown-model"));
  options.vlm_model_name = folder.path();
  EXPECT_THAT(config_error(R"({"model_type": "paligemma"})"), HasSubstr("model_type = \"paligemma\" is not supported"));
}

TEST_F(SmolVla, ProcessorsAndConfigAreThoseThatLeRobotWrites) {
  const Golden golden("smolvla");
  SmolVlaOptions own = dynamic_cast<const SmolVlaOptions&>(*golden.config().options);
  own.vlm_model_name = options.vlm_model_name;
  own.loss_version = "0.5.1";
  const SmolVlaPolicy policy(own, golden.config().features);
  TensorMap stats;
  for (const auto& [name, tensor] : load_safetensors(kFolder + "/policy_preprocessor_step_5_normalizer_processor.safetensors")) stats[name] = tensor;
  CheckpointFiles files;
  add_pretrained_model(files, "smolvla", policy, stats_from_tensors(stats), "{}");
  auto preprocessor = golden.json("policy_preprocessor.json"), config = golden.json("config.json");
  preprocessor["steps"][3]["config"]["tokenizer_name"] = options.vlm_model_name;
  config["vlm_model_name"] = options.vlm_model_name;
  EXPECT_EQ(nlohmann::json::parse(files.texts.at("pretrained_model/policy_preprocessor.json")), preprocessor);
  EXPECT_EQ(nlohmann::json::parse(files.texts.at("pretrained_model/policy_postprocessor.json")), golden.json("policy_postprocessor.json"));
  EXPECT_TRUE(files.tensors.contains("pretrained_model/policy_preprocessor_step_5_normalizer_processor.safetensors"));
  const auto ours = nlohmann::json::parse(files.texts.at("pretrained_model/config.json"));
  for (const auto& [key, value] : ours.items()) {
    ASSERT_TRUE(config.contains(key)) << key;
    EXPECT_EQ(value, config[key]) << key;
  }
}

}  // namespace
}  // namespace vla
