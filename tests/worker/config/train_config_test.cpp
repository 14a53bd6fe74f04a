#include "worker/train_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/option_text.hpp"
#include "common/yaml_config.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/worker/config/fake_policy.hpp"

namespace vla {
namespace {

using cxxrun::message_of;
using cxxrun::UsageError;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::vector<std::string>& arguments) {
  return message_of<UsageError>([&] { load(arguments); });
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) : path_(folder_.path() / "config.yaml") {
    cxxrun::write_file_atomically(path_, text);
  }
  std::string option() const { return "--config=" + path_.string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  cxxrun::TempDir folder_;
  std::filesystem::path path_;
};

TEST(TrainConfig, TheNamesThatOthersScriptAgainstExist) {
  const auto loaded =
      load({"--output_dir=/o", "--dataset.root=/d", "--policy.type=linear", "--policy.path=/p", "--device=cpu",
            "--training.steps=1", "--training.batch_size=2", "--training.seed=3", "--training.save_freq=4",
            "--training.log_freq=5", "--resume=auto", "--world_size=2", "--dry_run", "--dump_config"});
  const TrainConfig& config = loaded->config;
  EXPECT_EQ(config.output_dir, "/o");
  EXPECT_EQ(config.dataset.root, "/d");
  EXPECT_EQ(config.policy.type, "linear");
  EXPECT_EQ(config.policy.path, "/p");
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.training.steps, 1);
  EXPECT_EQ(config.training.batch_size, 2);
  EXPECT_EQ(config.training.seed, 3);
  EXPECT_EQ(config.training.save_freq, 4);
  EXPECT_EQ(config.training.log_freq, 5);
  EXPECT_EQ(config.resume, "auto");
  EXPECT_EQ(config.world_size, 2);
  EXPECT_TRUE(config.dry_run);
  EXPECT_TRUE(config.dump_config);
}

TEST(TrainConfig, LaterSourcesOverrideEarlierOnes) {
  // All levels up to `highest` set the option to their own number; the default and the preset always do.
  const char* kSources[] = {
      "", "policy preset", "checkpoint", "config", "environment variable OUTPUT_DIR", "command line"};
  for (int highest = 2; highest < 6; ++highest) {
    ConfigSources sources;
    const auto setting = [&](int level) {
      return std::vector<cxxrun::Setting>{
          {.name = "optimizer.lr", .items = {std::to_string(level)}, .source = kSources[level]}};
    };
    if (highest >= 2) sources.checkpoint = setting(2);
    if (highest >= 3) sources.yaml = setting(3);
    if (highest >= 4) sources.environment = setting(4);
    sources.command_line = {{.name = "policy.type", .items = {"act"}}, {.name = "dataset.root", .items = {"/d"}}};
    if (highest >= 5) sources.command_line.push_back(setting(5)[0]);
    const auto loaded = load(sources);
    EXPECT_EQ(loaded->config.optimizer.lr, highest);
    EXPECT_EQ(loaded->source("optimizer.lr"), kSources[highest]);
    EXPECT_EQ(sources.find("optimizer.lr"), std::to_string(highest));
  }
}

TEST(TrainConfig, ThePolicysPresetOverridesTheDefaultAndSeesThePolicysOptions) {
  const auto preset = load(std::vector<std::string>{});
  EXPECT_EQ(preset->config.optimizer.lr, 1e-5);
  EXPECT_EQ(preset->source("optimizer.lr"), "policy preset");
  EXPECT_EQ(preset->source("training.seed"), "");
  const ConfigFile file("optimizer:\n  weight_decay: 0.5\npolicy:\n  optimizer_lr: 3e-4\n");
  const auto loaded = load({file.option()});
  EXPECT_EQ(loaded->config.optimizer.lr, 3e-4);
  EXPECT_EQ(loaded->config.optimizer.weight_decay, 0.5);
  EXPECT_EQ(load({file.option(), "--optimizer.lr=1"})->config.optimizer.lr, 1);
}

TEST(TrainConfig, APolicyMayComeWithASchedule) {
  EXPECT_EQ(load(std::vector<std::string>{})->source("scheduler.type"), "");
  const auto preset = load({"--policy.scheduler_warmup_steps=500"});
  EXPECT_EQ(preset->config.scheduler.type, "cosine");
  EXPECT_EQ(preset->config.scheduler.warmup_steps, 500);
  EXPECT_EQ(preset->source("scheduler.warmup_steps"), "policy preset");
  EXPECT_EQ(load({"--policy.scheduler_warmup_steps=500", "--scheduler.type=constant"})->config.scheduler.type, "constant");
}

TEST(TrainConfig, ALearningRateOnTheCommandLineIsNotScaled) {
  EXPECT_EQ(load({"--lr_scaling=linear"})->config.training.lr_scaling, "linear");
  for (const char* lr : {"--lr=1.6e-3", "--optimizer.lr=1.6e-3"}) {
    const auto loaded = load({"--lr_scaling=linear", lr});
    EXPECT_EQ(loaded->config.training.lr_scaling, "none") << lr;
    EXPECT_THAT(cxxrun::dump_yaml(loaded->table),
                HasSubstr("lr_scaling: none  # not applied: optimizer.lr was given on the command line\n"));
  }
}

TEST(TrainConfig, EnvironmentStandsBetweenYamlAndCommandLineAndIsNoted) {
  const ConfigFile file("training:\n  batch_size: 2\n  steps: 3\n");
  const ConfigSources sources =
      read({file.option(), "--steps=5"}, {{"BATCH_SIZE", "16"}, {"STEPS", "4"}, {"SEED", "9"}, {"NUM_WORKERS", ""}});
  const auto loaded = load(sources);
  EXPECT_EQ(loaded->config.training.batch_size, 16);
  EXPECT_EQ(loaded->config.training.steps, 5);
  EXPECT_EQ(loaded->config.training.seed, 1000);
  EXPECT_THAT(sources.notes, ElementsAre("environment variable BATCH_SIZE=16 is read as --batch_size=16",
                                         "environment variable STEPS=4 is read as --steps=4"));
  EXPECT_EQ(load(read({}, {{"ACCELERATE_MIXED_PRECISION", "bf16"}}))->config.training.precision, "bf16-mixed");
  EXPECT_THROW(read({}, {{"ACCELERATE_MIXED_PRECISION", "bf61"}}), UsageError);
}

TEST(TrainConfig, ResumingStartsFromTheCheckpointsConfiguration) {
  const auto first =
      load({"--training.batch_size=3", "--policy.chunk_size=7", "--resume=auto", "--world_size=2", "--output_dir=/o"});
  const ConfigFile stored(cxxrun::dump_yaml(first->table));
  ConfigSources sources = read({"--resume=true", "--training.steps=9"});
  sources.command_line.erase(sources.command_line.begin(),
                             sources.command_line.begin() + 2);  // policy and dataset come from the checkpoint
  sources.add_checkpoint(stored.path());
  const auto resumed = load(sources);
  EXPECT_EQ(resumed->config.training.batch_size, 3);
  EXPECT_EQ(resumed->policy.chunk_size, 7);
  EXPECT_EQ(resumed->config.policy.type, "act");
  EXPECT_EQ(resumed->config.output_dir, "/o");
  EXPECT_EQ(resumed->config.training.steps, 9);
  EXPECT_EQ(resumed->config.world_size, 0);
  EXPECT_EQ(resumed->config.resume, "true");
}

TEST(TrainConfig, TheResolvedDumpIsAConfigurationWithTheSameValues) {
  const auto first = load({"--training.num_workers=auto", "--optimizer.lr=0.1", "--dataset.episodes=[3, 1]",
                           "--experiment_name=true", "--policy.chunk_size=9"});
  const std::string dump = cxxrun::dump_yaml(first->table);
  const ConfigFile file(dump);
  const auto second = load({file.option()});
  for (cxxrun::OptionRow& row : second->table.rows()) row.source = first->source(row.name);
  EXPECT_EQ(cxxrun::dump_yaml(second->table), dump);
  EXPECT_THAT(dump, HasSubstr("chunk_size: 9  # command line\n"));
}

TEST(TrainConfig, PathsAreRelativeToTheirFileOrToTheWorkingDirectory) {
  const ConfigFile file("dataset:\n  root: ../data\n");
  const std::vector<std::string> arguments = {file.option(), "--policy.type=act", "--output_dir=out"};
  const auto loaded = load(read_config_sources(arguments, [](const std::string&) { return std::nullopt; }));
  EXPECT_EQ(loaded->config.dataset.root, (file.path().parent_path().parent_path() / "data").string());
  EXPECT_EQ(loaded->config.output_dir, (std::filesystem::current_path() / "out").string());
  EXPECT_EQ(load({"--dataset.root=synthetic:frames=8"})->config.dataset.root, "synthetic:frames=8");
}

TEST(TrainConfig, APolicyPathThatIsATypeMeansTheType) {
  const auto loaded = load({"--policy.path=linear"});
  EXPECT_EQ(loaded->config.policy.type, "linear");
  EXPECT_EQ(loaded->config.policy.path, "");
}

TEST(TrainConfig, RefusesUnknownAndImpossibleSettings) {
  EXPECT_EQ(error_of({"--training.batchsize=3"}),
            "command line: unknown key 'training.batchsize'; did you mean 'training.batch_size'?");
  EXPECT_EQ(error_of({"--batchsize=3"}), "command line: unknown key 'batchsize'; did you mean 'batch_size'?");
  EXPECT_EQ(error_of({"--policy.chunksize=3"}),
            "command line: unknown key 'policy.chunksize'; did you mean 'policy.chunk_size'?");
  EXPECT_EQ(error_of({"--policy.type=actt"}),
            "command line: policy.type='actt': expected one of act, linear; did you mean 'act'?");
  EXPECT_EQ(error_of({"--device=gpu"}), "command line: device='gpu': expected auto, cpu, cuda or cuda:N");
  EXPECT_THAT(error_of({"--device=cuda:"}), HasSubstr("expected auto, cpu, cuda or cuda:N"));
  EXPECT_THAT(error_of({"--dataset.val_episodes=1", "--dataset.eval_split=0.1"}), HasSubstr("both hold out episodes"));
  EXPECT_THAT(error_of({"--experiment_name=../x"}), HasSubstr("experiment_name='../x' must not contain '/'"));
  EXPECT_THAT(error_of({"--config="}), HasSubstr("--config needs a file"));
  EXPECT_THAT(error_of({"--config"}), HasSubstr("--config needs a file"));
  EXPECT_THAT(error_of({"--dataset.root="}), HasSubstr("dataset.root is not set"));
  EXPECT_THAT(error_of({"--policy.type=null"}), HasSubstr("policy.type is not set (known: act, linear)"));
  for (const char* seed : {"-1", "1.5", "x"})
    EXPECT_THAT(error_of({fmt::format("--seed={}", seed)}), HasSubstr("expected an integer of at least 0"));
}

TEST(TrainConfig, ConfigHasFourSpellingsAndTheLastOneCounts) {
  const ConfigFile file("training:\n  steps: 3\n"), other("training:\n  steps: 4\n");
  for (const char* spelling : {"--config", "--config_path", "--config-name", "--config_file"}) {
    const ConfigSources sources = read({"--config=" + other.path().string(), spelling, file.path().string()});
    EXPECT_EQ(sources.config_path, file.path().string());
    EXPECT_EQ(load(sources)->config.training.steps, 3);
  }
}

TEST(TrainConfig, HelpIsRecognisedAnywhere) {
  EXPECT_TRUE(read({"--help"}).wants_help);
  EXPECT_TRUE(read({"--steps=3", "-h"}).wants_help);
  EXPECT_FALSE(read({}).wants_help);
}

TEST(TrainConfig, ShippedConfigurationsLoad) {
  for (const char* name : {"act_demo.yaml", "linear_synthetic.yaml"}) {
    ConfigSources sources =
        read_config_sources(std::vector<std::string>{fmt::format("--config={}/configs/{}", PROJECT_DIR, name)},
                            [](const std::string&) { return std::nullopt; });
    std::erase_if(sources.yaml, [](const cxxrun::Setting& setting) {
      return setting.name.starts_with("policy.") && setting.name != "policy.type";
    });
    const auto loaded = load(sources);
    EXPECT_EQ(loaded->config.scheduler.type, "constant") << name;
    EXPECT_TRUE(loaded->config.dataset.root.starts_with("synthetic:") || loaded->config.dataset.root == PROJECT_DIR
                                                                             "/tests/data/metaworld_demo")
        << name;
  }
}

}  // namespace
}  // namespace vla
