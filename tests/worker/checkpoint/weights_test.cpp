#include "worker/checkpoint/weights.hpp"

#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/registry.hpp"
#include "tests/worker/checkpoint/support.hpp"
#include "worker/checkpoint/lerobot_format.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::write_file_atomically;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const fs::path kHard = TEST_DATA_DIR "/hard";

std::shared_ptr<Policy> policy_for(const fs::path& pretrained_model) {
  const PretrainedConfig config = read_pretrained_config(pretrained_model);
  return cxxrun::find_in_registry(policy_registry(), config.type, "policy").make(*config.options, config.features);
}

const TensorMap kOwn = {{"model.a.w", torch::zeros({2})}, {"model.a.b", torch::zeros({3})}, {"model.c", torch::zeros({1})}};

TensorMap renamed(const std::function<std::string(const std::string&)>& name_of) {
  TensorMap tensors;
  double value = 1;
  for (const auto& [name, tensor] : kOwn) tensors[name_of(name)] = torch::full_like(tensor, value++);
  return tensors;
}

std::string load(const TensorMap& stored) {
  TensorMap own;
  for (const auto& [name, tensor] : kOwn) own[name] = tensor.clone();
  testing::internal::CaptureStdout();
  const std::string error = error_from([&] { copy_by_name(with_fitting_prefix(stored, own, "FILE"), own, "FILE"); });
  const std::string said = testing::internal::GetCapturedStdout();
  if (error != "no error") return error;
  EXPECT_EQ(own.at("model.a.b")[0].item<double>(), 1);
  EXPECT_EQ(own.at("model.a.w")[0].item<double>(), 2);
  EXPECT_EQ(own.at("model.c")[0].item<double>(), 3);
  return said;
}

TEST(Weights, APrefixOfAllNamesIsStrippedOrAddedAndNamed) {
  EXPECT_EQ(load(renamed([](const std::string& name) { return name; })), "");
  for (const char* prefix : {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    EXPECT_THAT(load(renamed([&](const std::string& name) { return prefix + name; })), AllOf(HasSubstr("FILE"), HasSubstr(prefix)));
  }
  EXPECT_THAT(load(renamed([](const std::string& name) { return name.substr(6); })), HasSubstr("'model.' is put in front"));
  EXPECT_THAT(load(renamed([](const std::string& name) { return "module." + name.substr(6); })),
              AllOf(HasSubstr("'module.' is removed"), HasSubstr("'model.' is put in front")));
  EXPECT_THAT(load(renamed([](const std::string& name) { return "model." + name; })), HasSubstr("'model.' is removed"));
}

TEST(Weights, APrefixOfSomeNamesOnlyIsAnErrorWithNumbersAndExamples) {
  EXPECT_THAT(load(renamed([](const std::string& name) { return name == "model.c" ? name : "module." + name; })),
              AllOf(HasSubstr("3 tensors, 3 wanted"), HasSubstr("2 tensors are missing: model.a.b, model.a.w"),
                    HasSubstr("2 tensors are unknown: module.model.a.b, module.model.a.w")));
}

TEST(Weights, NamesOfAWrappedModelAreRead) {
  const fs::path folder = kHard / "ckpt_prefixed_names";
  const auto expected = json::parse(cxxrun::read_file(folder / "case.json")).at("values");
  const auto policy = policy_for(folder / "ckpt");
  testing::internal::CaptureStdout();
  load_weights(folder / "ckpt", *policy);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("module._orig_mod."));
  const TensorMap weights = state_dict(*policy);
  EXPECT_EQ(weights.size(), expected.at("tensors").get<size_t>());
  for (const auto& [name, value] : expected.at("by_name_without_prefix").items()) {
    EXPECT_NEAR(weights.at(name).sum().item<double>(), value.at("sum").get<double>(), 1e-5) << name;
    EXPECT_EQ(weights.at(name)[1].item<float>(), value.at("first")[1].get<float>()) << name;
  }
}

TEST(Weights, StatisticsUnderTheNamesOfDatasetsAreAnErrorThatNamesThem) {
  const fs::path folder = kHard / "ckpt_stats_under_dataset_names/ckpt";
  EXPECT_THAT(error_from([&] { read_pretrained_stats(folder); }),
              AllOf(HasSubstr("of observation.state, action,"), HasSubstr("so100.buffer.action"), HasSubstr("so100-blue.buffer.action"),
                    HasSubstr("policy_preprocessor_step_3_normalizer_processor.safetensors"), HasSubstr("statistics of the training dataset")));
  EXPECT_EQ(read_pretrained_stats(folder, "so100.buffer").at("action").at("mean").values.size(), 6);
  EXPECT_THAT(error_from([&] { read_pretrained_stats(folder, "so101.buffer"); }), HasSubstr("'so101.buffer'"));
  // Fine-tuning takes the new dataset's and needs none of these.
  load_weights(folder, *policy_for(folder));
}

struct WeightFiles : testing::Test {
  TempDir dir;
  const TensorMap tensors = {{"a", torch::ones({2})}, {"b", torch::full({3}, 2.0)}};

  void write_index(const json& map) {
    write_file_atomically(dir.path() / "model.safetensors.index.json", json({{"metadata", {{"total_size", 20}}}, {"weight_map", map}}).dump());
  }
  std::string error() {
    return error_from([&] { read_weights(dir.path()); });
  }
};

TEST_F(WeightFiles, AreFoundAsFileFolderAndShards) {
  save_safetensors(dir.path() / "ema.safetensors", tensors);
  EXPECT_EQ(read_weights(dir.path() / "ema.safetensors").size(), 2);
  save_safetensors(dir.path() / "one.safetensors", {{"a", tensors.at("a")}});
  save_safetensors(dir.path() / "two.safetensors", {{"b", tensors.at("b")}});
  write_index({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  const TensorMap both = read_weights(dir.path());
  EXPECT_TRUE(torch::equal(both.at("a"), tensors.at("a")) && torch::equal(both.at("b"), tensors.at("b")));
  fs::create_directory(dir.path() / "pretrained_model");
  save_safetensors(dir.path() / "pretrained_model/model.safetensors", tensors);
  EXPECT_EQ(find_weights(dir.path()), dir.path() / "model.safetensors.index.json");
  fs::remove(dir.path() / "model.safetensors.index.json");
  EXPECT_EQ(find_weights(dir.path()), dir.path() / "pretrained_model/model.safetensors");
  EXPECT_THAT(error_from([&] { find_weights("/nowhere"); }), HasSubstr("/nowhere holds no weights"));
}

TEST_F(WeightFiles, ShardsStayInTheFolderAndHoldWhatTheIndexSays) {
  save_safetensors(dir.path() / "one.safetensors", tensors);
  write_index({{"a", "one.safetensors"}});
  EXPECT_THAT(error(), AllOf(HasSubstr("one.safetensors"), HasSubstr("'b'")));
  write_index({{"a", "one.safetensors"}, {"b", "one.safetensors"}, {"c", "one.safetensors"}});
  EXPECT_THAT(error(), HasSubstr("no tensor 'c'"));
  for (const char* outside : {"../one.safetensors", "/etc/passwd", "x/one.safetensors", ""}) {
    write_index({{"a", outside}});
    EXPECT_NE(error(), "no error") << outside;
  }
  write_index({{"a", "../one.safetensors"}});
  EXPECT_THAT(error(), HasSubstr("no file beside it"));
  write_index({{"a", 3}});
  EXPECT_THAT(error(), HasSubstr("no file beside it"));
  write_index(json::array());
  EXPECT_THAT(error(), HasSubstr("weight_map"));
  write_file_atomically(dir.path() / "model.safetensors.index.json", std::string(1000, '['));
  EXPECT_THAT(error(), HasSubstr("nested too deeply"));
}

TEST_F(WeightFiles, PickledFilesAreRefusedAndNameTheConverter) {
  for (const char* name : {"best_model.pth", "model.ckpt", "pytorch_model.bin"}) {
    write_file_atomically(dir.path() / name, "x");
    EXPECT_THAT(error_from([&] { read_weights(dir.path() / name); }), AllOf(HasSubstr(name), HasSubstr("scripts/convert_checkpoint.py")));
  }
  EXPECT_THAT(error(), HasSubstr("scripts/convert_checkpoint.py"));  // a folder with nothing else
}

}  // namespace
}  // namespace vla
