#include "worker/checkpoint/lerobot_format.hpp"

#include <gmock/gmock.h>
#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/registry.hpp"
#include "tests/support/temp_dir.hpp"
#include "worker/checkpoint/weights.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::read_file;
using cxxrun::TempDir;
using cxxrun::write_file_atomically;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// config.json and the processors of an ACT policy that LeRobot 0.6.1 saved.
const fs::path kLeRobot = TEST_DATA_DIR "/lerobot_checkpoint";

std::shared_ptr<Policy> make_policy(const PretrainedConfig& config) {
  return cxxrun::find_in_registry(policy_registry(), config.type, "policy").make(*config.options, config.features);
}

// Made once: its image encoder takes a while to initialise.
std::shared_ptr<Policy> policy_of_lerobots_config() {
  static const std::shared_ptr<Policy> policy = make_policy(read_pretrained_config(kLeRobot));
  return policy;
}

// What we save of the policy that LeRobot's config.json describes.
class LeRobotFormat : public testing::Test {
 protected:
  LeRobotFormat() {
    CheckpointFiles files;
    add_pretrained_model(files, "act", *policy_, read_pretrained_stats(kLeRobot), "{}");
    write_files(dir_.path(), files, [] {});
  }

  std::string error_of_loading() {
    try {
      load_weights(saved_, *policy_);
    } catch (const cxxrun::Error& e) {
      return e.what();
    }
    return "no error";
  }

  TempDir dir_;
  const fs::path saved_ = dir_.path() / "pretrained_model";
  const std::shared_ptr<Policy> policy_ = policy_of_lerobots_config();
};

TEST_F(LeRobotFormat, ProcessorsAreThoseThatLeRobotWrites) {
  for (const char* name : {"policy_preprocessor.json", "policy_postprocessor.json"}) {
    EXPECT_EQ(json::parse(read_file(saved_ / name)), json::parse(read_file(kLeRobot / name))) << name;
  }
  const TensorMap expected = load_safetensors(kLeRobot / "policy_preprocessor_step_3_normalizer_processor.safetensors");
  for (const char* name : {"policy_preprocessor_step_3_normalizer_processor.safetensors",
                           "policy_postprocessor_step_0_unnormalizer_processor.safetensors"}) {
    const TensorMap stats = load_safetensors(saved_ / name);
    ASSERT_EQ(stats.size(), expected.size());
    for (const auto& [key, tensor] : expected) {
      // Only the preprocessor broadcasts an image's count.
      const bool is_flat = std::string(name).starts_with("policy_post") && key.ends_with(".count");
      EXPECT_TRUE(torch::equal(stats.at(key), is_flat ? tensor.flatten() : tensor)) << name << " " << key;
    }
  }
}

TEST_F(LeRobotFormat, ConfigHasOnlyLeRobotsKeysWithEqualValues) {
  const json ours = json::parse(read_file(saved_ / "config.json")),
             lerobot = json::parse(read_file(kLeRobot / "config.json"));
  for (const auto& [key, value] : ours.items()) {
    ASSERT_TRUE(lerobot.contains(key)) << key;
    EXPECT_EQ(value, lerobot[key]) << key;
  }
  EXPECT_TRUE(ours.at("pretrained_backbone_weights").is_null());
  EXPECT_FALSE(ours.contains("backbone_weights"));
}

TEST_F(LeRobotFormat, RoundTripKeepsOptionsFeaturesStatsAndWeights) {
  const PretrainedConfig config = read_pretrained_config(saved_);
  EXPECT_EQ(config.type, "act");
  ASSERT_EQ(config.features.inputs.size(), 2);
  EXPECT_EQ(config.features.inputs[0].key, "observation.image");
  EXPECT_EQ(config.features.inputs[0].type, data::FeatureType::kVisual);
  EXPECT_EQ(config.features.inputs[0].shape, (std::vector<int64_t>{3, 128, 128}));
  EXPECT_EQ(config.features.outputs.at(0).key, "action");
  cxxrun::OptionTable before, after;
  const_cast<PolicyOptions&>(policy_->options()).describe(before);
  config.options->describe(after);
  EXPECT_EQ(options_as_json(after), options_as_json(before));
  EXPECT_EQ(read_pretrained_stats(saved_).at("observation.image").at("mean").shape, (std::vector<int64_t>{3, 1, 1}));

  const std::shared_ptr<Policy> loaded = make_policy(config);
  load_weights(saved_, *loaded);
  const TensorMap weights = state_dict(*loaded);
  for (const auto& [name, tensor] : state_dict(*policy_)) EXPECT_TRUE(torch::equal(weights.at(name), tensor)) << name;
}

TEST_F(LeRobotFormat, AFolderOfAveragedWeightsHasThemAndEverythingElse) {
  CheckpointFiles files;
  const TensorMap averaged = {{"model.action_head.bias", torch::full({4}, 7.0)}};
  add_pretrained_model(files, "act", *policy_, read_pretrained_stats(kLeRobot), "{}", kEmaModelFolder, averaged);
  write_files(dir_.path(), files, [] {});
  const fs::path ema = dir_.path() / "pretrained_model_ema";
  const TensorMap weights = load_safetensors(ema / "model.safetensors"), plain = load_safetensors(saved_ / "model.safetensors");
  ASSERT_EQ(weights.size(), plain.size());
  EXPECT_TRUE(torch::equal(weights.at("model.action_head.bias"), averaged.at("model.action_head.bias")));
  EXPECT_TRUE(torch::equal(weights.at("model.action_head.weight"), plain.at("model.action_head.weight")));
  for (const auto& entry : fs::directory_iterator(saved_)) {
    const auto name = entry.path().filename();
    if (name == "model.safetensors") continue;
    EXPECT_EQ(read_file(ema / name), read_file(saved_ / name)) << name;
  }
}

TEST_F(LeRobotFormat, WeightsThatDoNotFitAreOneErrorListingThem) {
  const fs::path file = saved_ / "model.safetensors";
  TensorMap weights = load_safetensors(file);
  ASSERT_EQ(weights.erase("model.action_head.bias"), 1);
  weights["model.action_head.weight"] = torch::zeros({2, 2});
  weights["model.surprise"] = torch::zeros({1});
  save_safetensors(file, weights);
  const torch::Tensor before = policy_->parameters()[0].detach().clone();
  EXPECT_THAT(error_of_loading(), AllOf(HasSubstr(file.string()), HasSubstr("model.action_head.bias is missing"),
                                        HasSubstr("model.action_head.weight has shape [2, 2], not [4, 64]"),
                                        HasSubstr("model.surprise is unknown")));
  EXPECT_TRUE(torch::equal(policy_->parameters()[0], before));
}

TEST_F(LeRobotFormat, AveragingOfChunksIsKeptWithAWarning) {
  json config = json::parse(read_file(saved_ / "config.json"));
  config["temporal_ensemble_coeff"] = 0.01;
  config["license"] = "mit";
  write_file_atomically(saved_ / "config.json", config.dump());
  testing::internal::CaptureStderr();
  read_pretrained_config(saved_);
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning, AllOf(HasSubstr("config.json"), HasSubstr("temporal_ensemble_coeff = 0.01"), testing::Not(HasSubstr("license"))));
}

TEST_F(LeRobotFormat, FindsTheFolderThatTheUserMeant) {
  EXPECT_EQ(find_pretrained_model(saved_), saved_ / "");
  EXPECT_EQ(find_pretrained_model(dir_.path()), saved_);
  EXPECT_THROW(find_pretrained_model("/nowhere"), cxxrun::UsageError);
}

TEST_F(LeRobotFormat, DamagedFilesAreErrorsThatNameFileAndKey) {
  const auto error_of = [&](const char* file, const std::string& text, auto read) -> std::string {
    write_file_atomically(saved_ / file, text);
    try {
      read(saved_);
    } catch (const cxxrun::Error& e) {
      return e.what();
    }
    return "no error";
  };
  const json good = json::parse(read_file(saved_ / "config.json"));
  const auto with = [&](const char* key, const json& value) {
    json config = good;
    config[key] = value;
    return config.dump();
  };
  const auto config_error = [&](const std::string& text) {
    return error_of("config.json", text, read_pretrained_config);
  };
  EXPECT_THAT(config_error("{\"type\":"), AllOf(HasSubstr("config.json"), HasSubstr("not valid")));
  EXPECT_THAT(config_error("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(config_error("{}"), HasSubstr("'type' is missing"));
  EXPECT_THAT(config_error(with("type", "actt")), AllOf(HasSubstr("config.json"), HasSubstr("did you mean 'act'")));
  EXPECT_THAT(config_error(R"({"type": "act", "x": )" + std::string(100'000, '[')),
              AllOf(HasSubstr("config.json"), HasSubstr("nested too deeply")));
  EXPECT_THAT(config_error(with("output_features", {{"action", {{"type", "ACTION"}, {"shape", {-4}}}}})),
              AllOf(HasSubstr("config.json"), HasSubstr("'action' has a size of -4")));
  EXPECT_THAT(config_error(with("input_features", 3)), AllOf(HasSubstr("config.json"), HasSubstr("'input_features'")));
  EXPECT_THAT(config_error(with("input_features", {{"x", {{"type", "SMELL"}, {"shape", {1}}}}})),
              HasSubstr("unknown feature type 'SMELL'"));
  EXPECT_THAT(config_error(with("dim_model", "wide")),
              AllOf(HasSubstr("config.json"), HasSubstr("dim_model"), HasSubstr("wide")));
  EXPECT_THAT(config_error(with("dim_model", -64)), AllOf(HasSubstr("dim_model"), HasSubstr("-64")));

  const auto stats_error = [&](const std::string& text) {
    return error_of("policy_preprocessor.json", text, [](const fs::path& folder) { read_pretrained_stats(folder); });
  };
  EXPECT_THAT(stats_error("{}"), HasSubstr("is not a processor"));
  EXPECT_THAT(stats_error(R"({"steps": []})"), HasSubstr("no step 'normalizer_processor'"));
  EXPECT_THAT(
      stats_error(R"({"steps": [{"registry_name": "normalizer_processor", "state_file": "../../etc/passwd"}]})"),
      HasSubstr("is not a file beside it"));
}

}  // namespace
}  // namespace vla
