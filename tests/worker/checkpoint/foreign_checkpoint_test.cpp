// Checkpoints of LeRobot's, of every policy: what is kept of them, and what is refused, by name.
#include <map>

#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/registry.hpp"
#include "tests/worker/checkpoint/support.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/weights.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// config.json as LeRobot 0.6.1 wrote it for a small policy.
json lerobots_config(const std::string& type) {
  json config = json::parse(cxxrun::read_file(fs::path(TEST_DATA_DIR "/goldens") / type / "config.json"));
  if (type == "smolvla") config["vlm_model_name"] = TEST_DATA_DIR "/goldens/smolvla/vlm";
  return config;
}

std::shared_ptr<Policy> policy_of(const PretrainedConfig& config) {
  return cxxrun::find_in_registry(policy_registry(), config.type, "policy").make(*config.options, config.features);
}

struct ForeignCheckpoint : testing::TestWithParam<const char*> {
  TempDir dir;
  const std::string type = GetParam();
  const fs::path config_file = dir.path() / "config.json";

  PretrainedConfig read(const json& config) {
    cxxrun::write_file_atomically(config_file, config.dump());
    return read_pretrained_config(dir.path());
  }
  std::string error(const json& config) {
    return error_from([&] { read(config); });
  }
  json stored(const PretrainedConfig& config) {
    CheckpointFiles files;
    add_pretrained_model(files, type, *policy_of(config), {}, "{}");
    return json::parse(files.texts.at("pretrained_model/config.json"));
  }
};

TEST_P(ForeignCheckpoint, EveryKeyOfItsConfigurationComesBackWithItsValue) {
  json config = lerobots_config(type);
  config.update({{"license", "mit"}, {"tags", {"a", "b"}}, {"repo_id", "somebody/a_policy"}, {"private", true}, {"use_amp", true}});
  if (type == "smolvla") {
    config["empty_cameras"] = 1;
    config["input_features"]["observation.images.empty_camera_0"] = {{"type", "VISUAL"}, {"shape", {3, 480, 640}}};
  }
  EXPECT_EQ(stored(read(config)), config);
  if (type != "smolvla") return;
  json unlisted = config;
  unlisted["input_features"].erase("observation.images.empty_camera_0");  // as of a dataset, which does not have it
  EXPECT_EQ(stored(read(unlisted)), config);
}

TEST_P(ForeignCheckpoint, KeysThatTheUserGivesCannotReplaceOthers) {
  const PretrainedConfig config = read(lerobots_config(type));
  cxxrun::OptionTable table;
  config.options->describe(table);
  *std::get<std::string*>(table.find("lerobot_keys")->value) = R"({"type": "linear", "n_obs_steps": 7, "license": "mit"})";
  EXPECT_EQ(stored(config).at("type"), type);
  EXPECT_NE(stored(config).at("n_obs_steps"), 7);
  EXPECT_EQ(stored(config).at("license"), "mit");
  *std::get<std::string*>(table.find("lerobot_keys")->value) = "[1";
  testing::internal::CaptureStderr();
  EXPECT_FALSE(stored(config).contains("license"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("policy.lerobot_keys = [1 is left out"));
}

TEST_P(ForeignCheckpoint, WrongKeysAndValuesAreErrorsThatNameThemAndWhatHelps) {
  struct Case {
    const char* only;  // a policy type, or "" for all
    json::json_pointer place;
    json value;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"", json::json_pointer("/n_action_step"), 4, {"'n_action_step' = 4", "did you mean 'n_action_steps'?"}},
      {"", json::json_pointer("/licence"), "mit", {"'licence' = \"mit\"", "did you mean 'license'?"}},
      {"", json::json_pointer("/zebra"), {{"stripes", 3}}, {"'zebra' = {\"stripes\":3}", "remove what is unknown"}},
      {"", json::json_pointer("/zebra"), nullptr, {"'zebra' = null"}},
      {"", json::json_pointer("/lerobot_keys"), "{}", {"'lerobot_keys'"}},
      {"", json::json_pointer("/normalization_mapping/STATES"), "MEAN_STD", {"did you mean 'normalization_mapping.STATE'?"}},
      {"", json::json_pointer("/normalization_mapping/STATE"), "MEAN", {"normalization_mapping.STATE='MEAN'", "one of MEAN_STD, MIN_MAX, IDENTITY"}},
      {"", json::json_pointer("/type"), "smolvlaa", {"policy type 'smolvlaa'", "known: act, diffusion", "did you mean 'smolvla'?"}},
      {"", json::json_pointer("/n_action_steps"), nullptr, {"n_action_steps = null", "leave the key out"}},
      {"", json::json_pointer("/n_action_steps"), 0, {"n_action_steps='0'", "an integer of at least 1"}},
      {"", json::json_pointer("/n_action_steps"), 1000, {"policy.n_action_steps = 1000 is above", "lower it"}},
      {"", json::json_pointer("/optimizer_lr"), "fast", {"optimizer_lr='fast'", "a number of at least 0"}},
      {"", json::json_pointer("/optimizer_lr"), json::array({1, 2}), {"optimizer_lr", "one value, not a list"}},
      {"", json::json_pointer("/use_peft"), true, {"use_peft = true", "merge it into its policy"}},
      {"act", json::json_pointer("/dropout"), 1.5, {"dropout='1.5'", "from 0 to 0.999"}},
      {"act", json::json_pointer("/use_vae"), "perhaps", {"use_vae='perhaps'", "true or false"}},
      {"diffusion", json::json_pointer("/noise_scheduler_type"), "DDPMM", {"one of DDPM, DDIM", "did you mean 'DDPM'?"}},
      {"diffusion", json::json_pointer("/down_dims"), nullptr, {"policy.down_dims has 0 levels"}},
      {"smolvla", json::json_pointer("/empty_cameras"), -1, {"empty_cameras='-1'", "from 0 to 64"}},
      {"smolvla", json::json_pointer("/weights_follow"), false, {"'weights_follow'"}},
      // LeRobot does not read it either.
      {"smolvla", json::json_pointer("/resize_imgs_with_padding"), nullptr, {"policy.resize_imgs_with_padding = []", "give the images' own"}},
  };
  for (const Case& wrong : cases) {
    if (*wrong.only != '\0' && wrong.only != type) continue;
    json config = lerobots_config(type);
    config[wrong.place] = wrong.value;
    const std::string message = error(config);
    EXPECT_THAT(message, HasSubstr(config_file.string())) << wrong.place;
    for (const std::string& text : wrong.says) EXPECT_THAT(message, HasSubstr(text)) << wrong.place;
  }
  const std::string good = lerobots_config(type).dump();
  for (const size_t length : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
    cxxrun::write_file_atomically(config_file, good.substr(0, length));
    EXPECT_THAT(error_from([&] { read_pretrained_config(dir.path()); }), AllOf(HasSubstr(config_file.string()), HasSubstr("not valid"))) << length;
  }
}

TEST_P(ForeignCheckpoint, WrongTensorsAreErrorsThatNameThem) {
  const auto policy = policy_of(read(lerobots_config(type)));
  const TensorMap own = state_dict(*policy);
  const auto is_weight = [](const auto& entry) { return entry.second.dim() == 2 && entry.second.is_floating_point(); };
  const auto& [name, tensor] = *std::ranges::find_if(own, is_weight);
  const auto error_with = [&](const std::string& changed, const at::Tensor& value) {
    TensorMap stored = own;
    stored.erase(changed);
    if (value.defined()) stored[changed] = value;
    save_safetensors(dir.path() / "model.safetensors", stored);
    return error_from([&] { load_weights(dir.path(), *policy); });
  };
  const at::Tensor before = tensor.clone();
  const std::pair<std::string, std::string> cases[] = {
      {error_with(name, {}), name + " is missing"},
      {error_with("model.surprise", torch::ones({1})), "model.surprise is unknown"},
      {error_with(name, torch::ones({3, 2})), name + " has shape [3, 2], not ["},
      {error_with(name, torch::ones_like(tensor, at::kLong)), name + " has dtype Long, not Float"},
  };
  for (const auto& [message, says] : cases) {
    EXPECT_THAT(message, AllOf(HasSubstr(says), HasSubstr((dir.path() / "model.safetensors").string()), HasSubstr("config.json, the options")));
  }
  EXPECT_TRUE(torch::equal(tensor, before));
  EXPECT_EQ(error_with(name, torch::ones_like(tensor, at::kBFloat16)), "no error");
  EXPECT_TRUE(torch::equal(tensor, torch::ones_like(tensor)));
}

INSTANTIATE_TEST_SUITE_P(Of, ForeignCheckpoint, testing::Values("act", "diffusion", "smolvla"), [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace vla
