#include "worker/checkpoint/training_state.hpp"

#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/registry.hpp"
#include "tests/worker/checkpoint/support.hpp"
#include "worker/checkpoint/find_checkpoint.hpp"
#include "worker/checkpoint/fingerprint.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/lerobot_state.hpp"
#include "worker/checkpoint/weights.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// What lerobot-train 0.6.1 left after 3 steps.
const fs::path kLeRobotRun = TEST_DATA_DIR "/lerobot_resume";

std::shared_ptr<Policy> policy_of(const fs::path& pretrained_model) {
  const PretrainedConfig config = read_pretrained_config(pretrained_model);
  return cxxrun::find_in_registry(policy_registry(), config.type, "policy").make(*config.options, config.features);
}

// A checkpoint folder with LeRobot's files for the optimizer.
struct LeRobotState : testing::Test {
  TempDir dir;

  void write(const json& groups, const TensorMap& tensors) {
    fs::create_directories(dir.path() / "training_state");
    cxxrun::write_file_atomically(dir.path() / "training_state/training_step.json", R"({"step": 1})");
    cxxrun::write_file_atomically(dir.path() / "training_state/optimizer_param_groups.json", groups.dump());
    save_safetensors(dir.path() / "training_state/optimizer_state.safetensors", tensors);
  }
};

json group_of(int64_t begin, int64_t end) {
  json params = json::array();
  for (int64_t i = begin; i < end; ++i) params.push_back(i);
  return {{"lr", 0.1}, {"params", params}};
}

TEST_F(LeRobotState, IsFoundAndRead) {
  const auto checkpoint = find_checkpoint(kLeRobotRun, "/nowhere");
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->filename(), "000003");
  const TrainingState state = read_training_state(*checkpoint);
  EXPECT_TRUE(state.by_lerobot);
  EXPECT_EQ(state.step, 3);
  EXPECT_EQ(state.consumed_samples, 24);
  EXPECT_EQ(state.seed, 1000);
  EXPECT_EQ(state.global_batch, 8);
  EXPECT_EQ(state.schedule_steps, 5);
}

TEST_F(LeRobotState, MomentsLandOnTheirParameters) {
  const fs::path checkpoint = kLeRobotRun / "checkpoints/000003";
  const auto policy = policy_of(checkpoint / "pretrained_model");
  const TensorMap state = read_optimizer_state(checkpoint, *policy);
  const TensorMap stored = load_safetensors(checkpoint / "training_state/optimizer_state.safetensors");
  EXPECT_EQ(state.size(), 3 * policy->parameters().size());
  // LeRobot's parameter 0 and, by name, its last.
  EXPECT_TRUE(torch::equal(state.at("model.encoder.layers.0.self_attn.in_proj_weight.exp_avg"), stored.at("state/0/exp_avg")));
  EXPECT_TRUE(torch::equal(state.at("model.action_head.bias.exp_avg_sq"), stored.at("state/41/exp_avg_sq")));
  EXPECT_EQ(state.at("model.action_head.bias.step").item<double>(), 3);
}

TEST_F(LeRobotState, NumbersActsTwoGroupsAsLeRobotDoes) {
  const auto order = json::parse(cxxrun::read_file(kLeRobotRun / "act_optimizer_order.json"));
  ASSERT_EQ(order.size(), 2);
  const auto policy = policy_of(TEST_DATA_DIR "/lerobot_checkpoint");
  const auto parameters = policy->named_parameters();
  std::vector<std::string> names;
  for (const json& group : order) {
    for (const json& name : group) names.push_back(name.get<std::string>());
  }
  TensorMap tensors;
  for (size_t i = 0; i < names.size(); ++i) {
    const torch::Tensor& parameter = parameters[names[i]];
    tensors[fmt::format("state/{}/exp_avg", i)] = torch::full_like(parameter, static_cast<double>(i));
    tensors[fmt::format("state/{}/exp_avg_sq", i)] = torch::full_like(parameter, static_cast<double>(i));
    tensors[fmt::format("state/{}/step", i)] = torch::full({}, 1.0);
  }
  const auto first = static_cast<int64_t>(order[0].size()), all = static_cast<int64_t>(names.size());
  write(json::array({group_of(0, first), group_of(first, all)}), tensors);
  const TensorMap state = read_optimizer_state(dir.path(), *policy);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(state.at(names[i] + ".exp_avg").flatten()[0].item<double>(), i) << names[i];
  }
}

TEST_F(LeRobotState, CountsFrozenParametersAndFillsInThoseNeverUpdated) {
  const auto policy = policy_of(kLeRobotRun / "checkpoints/000003/pretrained_model");
  const auto parameters = policy->named_parameters();
  const auto count = static_cast<int64_t>(parameters.size());
  parameters[0].value().set_requires_grad(false);
  const auto& second = parameters[1];
  write(json::array({group_of(0, count)}), {{"state/1/exp_avg", torch::ones_like(second.value())},
                                           {"state/1/exp_avg_sq", torch::ones_like(second.value())},
                                           {"state/1/step", torch::ones({})}});
  const TensorMap state = read_optimizer_state(dir.path(), *policy);
  EXPECT_EQ(state.size(), 3 * (parameters.size() - 1));
  EXPECT_FALSE(state.contains(parameters[0].key() + ".exp_avg"));
  EXPECT_EQ(state.at(second.key() + ".exp_avg").sum().item<int64_t>(), second.value().numel());
  EXPECT_EQ(state.at(parameters[2].key() + ".exp_avg").abs().sum().item<double>(), 0);
  EXPECT_EQ(state.at(parameters[2].key() + ".step").item<double>(), 0);
}

TEST_F(LeRobotState, WhatDoesNotFitIsNamed) {
  const auto policy = policy_of(kLeRobotRun / "checkpoints/000003/pretrained_model");
  const auto count = static_cast<int64_t>(policy->parameters().size());
  const auto error = [&] { return error_from([&] { read_optimizer_state(dir.path(), *policy); }); };
  write(json::array({group_of(0, 7)}), {});
  EXPECT_THAT(error(), AllOf(HasSubstr("optimizer_param_groups.json"), HasSubstr("7 parameters"), HasSubstr(std::to_string(count))));
  write(json::array({group_of(0, count)}), {{"state/1/exp_avg", torch::ones({5})}});
  EXPECT_THAT(error(), AllOf(HasSubstr("state/1/exp_avg has shape [5]"), HasSubstr(policy->named_parameters()[1].key())));
  write(json::array({group_of(0, count)}), {{"state/99/exp_avg", torch::ones({5})}});
  EXPECT_THAT(error(), HasSubstr("state/99/exp_avg"));
  write(json::object(), {});
  EXPECT_THAT(error(), HasSubstr("optimizer_param_groups.json"));
  cxxrun::write_file_atomically(dir.path() / "training_state/training_step.json", R"({"step": -1})");
  EXPECT_THAT(error_from([&] { read_training_state(dir.path()); }), AllOf(HasSubstr("training_step.json"), HasSubstr("-1")));
}

TEST_F(LeRobotState, SettingsAreThoseOfItsTrainConfig) {
  std::map<std::string, std::string> texts;
  for (const auto& setting : read_lerobot_settings(kLeRobotRun / "checkpoints/000003")) texts[setting.name] = setting.text();
  EXPECT_EQ(texts.at("batch_size"), "8");
  EXPECT_EQ(texts.at("steps"), "5");
  EXPECT_EQ(texts.at("seed"), "1000");
  EXPECT_EQ(texts.at("dataset.root"), "dataset");
  EXPECT_EQ(texts.at("optimizer.type"), "adamw");
  EXPECT_EQ(texts.at("optimizer.lr"), "0.001");
  EXPECT_EQ(texts.at("optimizer.beta2"), "0.999");
  EXPECT_EQ(texts.at("optimizer.weight_decay"), "0.0001");
  EXPECT_FALSE(texts.contains("scheduler.type"));
}

TEST(TensorState, IsOptional) {
  const TempDir dir;
  EXPECT_FALSE(read_tensor_state(dir.path(), "ema"));
  CheckpointFiles files = files_of(1);
  add_tensor_state(files, "ema", {{"w", torch::full({3}, 7.0)}});
  CheckpointWriter writer({.output_dir = dir.path()});
  writer.take(files);
  writer.save(state_of(1));
  EXPECT_TRUE(writer.wait());
  EXPECT_EQ(read_tensor_state(dir.path() / "checkpoints/last", "ema")->at("w")[0].item<double>(), 7);
}

TEST(DataFingerprint, FollowsWhatSampleNumbersMean) {
  const auto of = [](const std::string& root, std::vector<int64_t> episodes = {}) {
    return data_fingerprint(*data::open_dataset({.root = root, .episodes = std::move(episodes)}));
  };
  const std::string one = of("synthetic:frames=20,state=3,episodes=4");
  EXPECT_EQ(one.size(), 16);
  EXPECT_EQ(one, of("synthetic:frames=20,state=3,episodes=4"));
  for (const char* other : {"synthetic:frames=21,state=3,episodes=4", "synthetic:frames=20,state=4,episodes=4", "synthetic:frames=20,state=3,episodes=5",
                            "synthetic:frames=20,state=3,episodes=4,task_count=2"}) {
    EXPECT_NE(one, of(other)) << other;
  }
  EXPECT_NE(of("synthetic:frames=20,state=3,episodes=4", {0, 1}), of("synthetic:frames=20,state=3,episodes=4", {0, 2}));
}

}  // namespace
}  // namespace vla
