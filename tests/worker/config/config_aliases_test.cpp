#include "worker/config_aliases.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/worker/config/fake_policy.hpp"

namespace vla {
namespace {

using cxxrun::message_of;
using cxxrun::UsageError;
using testing::HasSubstr;

// The value of `option` as the resolved dump writes it.
std::string dumped(Loaded& loaded, const std::string& option) {
  cxxrun::OptionTable one;
  cxxrun::OptionRow& row = one.add("x", loaded.table.find(option)->value, "");
  row.or_word(loaded.table.find(option)->word, loaded.table.find(option)->word_value);
  const std::string line = cxxrun::dump_yaml(one);  // "x: VALUE\n"
  return line.substr(3, line.size() - 4);
}

// Two settings that make one option, tried in PrecisionIsOneOptionInEverySpelling.
bool is_half_of_precision(const ConfigAlias& alias) {
  return alias.canonical && std::string_view(alias.canonical).find("mixed_precision") != std::string_view::npos;
}

struct Spelling {
  std::vector<std::string> arguments;
  std::string option, value;
};

TEST(ConfigAliases, EverySpellingSetsItsOption) {
  const Spelling spellings[] = {
      {{"--batch_size", "4"}, "training.batch_size", "4"},
      {{"--train_batch_size=16"}, "training.batch_size", "16"},
      {{"--train-batch-size=16"}, "training.batch_size", "16"},
      {{"data.batch_size=4"}, "training.batch_size", "4"},
      {{"dataloader.batch_size=64"}, "training.batch_size", "64"},
      {{"--batch_size_mode=per_gpu"}, "training.batch_size_mode", "per_gpu"},
      {{"--keep_effective_batch_size"}, "training.batch_size_mode", "total"},
      {{"--keep_effective_batch_size=false"}, "training.batch_size_mode", "per_gpu"},
      {{"--gradient_accumulation_steps=2"}, "training.gradient_accumulation_steps", "2"},
      {{"--accumulation_steps=4"}, "training.gradient_accumulation_steps", "4"},
      {{"training.accumulation_steps=4"}, "training.gradient_accumulation_steps", "4"},
      {{"training.gradient_accumulate_every=4"}, "training.gradient_accumulation_steps", "4"},
      {{"--lr", "1.6e-3"}, "optimizer.lr", "0.0016"},
      {{"--learning_rate=2e-4"}, "optimizer.lr", "0.0002"},
      {{"--optimizer.lr=2e-4"}, "optimizer.lr", "0.0002"},
      {{"training.lr=2e-4"}, "optimizer.lr", "0.0002"},
      {{"training.learning_rate=2e-4"}, "optimizer.lr", "0.0002"},
      {{"--lr_scaling=sqrt"}, "training.lr_scaling", "sqrt"},
      {{"--weight_decay=0.5"}, "optimizer.weight_decay", "0.5"},
      {{"training.weight_decay=0.5"}, "optimizer.weight_decay", "0.5"},
      {{"--max_grad_norm=1"}, "optimizer.grad_clip_norm", "1.0"},
      {{"training.grad_clip_norm=1"}, "optimizer.grad_clip_norm", "1.0"},
      {{"--lr_scheduler=linear"}, "scheduler.type", "linear"},
      {{"training.lr_scheduler=linear"}, "scheduler.type", "linear"},
      {{"--lr_warmup_steps=5"}, "scheduler.warmup_steps", "5"},
      {{"training.lr_warmup_steps=5"}, "scheduler.warmup_steps", "5"},
      {{"--lr_num_cycles=3"}, "scheduler.num_cycles", "3"},
      {{"--lr_power=2"}, "scheduler.power", "2.0"},
      {{"--scheduler.num_warmup_steps=5"}, "scheduler.warmup_steps", "5"},
      {{"--scheduler.num_decay_steps=5"}, "scheduler.decay_steps", "5"},
      {{"--num_workers=3"}, "training.num_workers", "3"},
      {{"--num_workers=auto"}, "training.num_workers", "auto"},
      {{"--dataloader_num_workers=3"}, "training.num_workers", "3"},
      {{"data.num_workers=3"}, "training.num_workers", "3"},
      {{"dataloader.num_workers=3"}, "training.num_workers", "3"},
      {{"--steps", "100"}, "training.steps", "100"},
      {{"--timing"}, "logging.timing", "true"},
      {{"--profile=3"}, "logging.profile_steps", "3"},
      {{"--max_steps=100"}, "training.steps", "100"},
      {{"--max_train_steps=20000"}, "training.steps", "20000"},
      {{"training.max_train_steps=100"}, "training.steps", "100"},
      {{"--epochs", "20"}, "training.epochs", "20"},
      {{"--num_epochs=20"}, "training.epochs", "20"},
      {{"training.num_epochs=20"}, "training.epochs", "20"},
      {{"--save_freq=1000"}, "training.save_freq", "1000"},
      {{"--checkpointing_period=1000"}, "training.save_freq", "1000"},
      {{"training.save_every_n_steps=1000"}, "training.save_freq", "1000"},
      {{"training.checkpoint_every=300"}, "training.save_epochs", "300"},
      {{"training.save_checkpoint_interval=2"}, "training.save_epochs", "2"},
      {{"--checkpoints_total_limit=5"}, "training.keep_checkpoints", "5"},
      {{"--training.precision=bfloat16"}, "training.precision", "bf16-mixed"},
      {{"--precision=tf32"}, "training.precision", "tf32"},
      {{"--mixed_precision=fp16"}, "training.precision", "fp16-mixed"},
      {{"--accelerator.mixed_precision=bf16"}, "training.precision", "bf16-mixed"},
      {{"model.vlm_config.dtype=torch.float32"}, "training.precision", "fp32"},
      {{"--use_ema"}, "ema.enable", "true"},
      {{"training.use_ema=True"}, "ema.enable", "true"},
      {{"--ema.max_value=0.5"}, "ema.decay", "0.5"},
      {{"--ema.min_value=0.5"}, "ema.min_decay", "0.5"},
      {{"--dataset.image_transforms.enable=true"}, "augment.enable", "true"},
      {{"--dataset.image_transforms.max_num_transforms=2"}, "augment.max_num_transforms", "2"},
      {{"--dataset.image_transforms.random_order=true"}, "augment.random_order", "true"},
      {{"--rename_map=[a=b]"}, "policy.rename_map", "[\"a=b\"]"},
      {{"--use_wandb"}, "logging.wandb.enable", "true"},
      {{"--enable_wandb=true"}, "logging.wandb.enable", "true"},
      {{"training.use_wandb=true"}, "logging.wandb.enable", "true"},
      {{"--wandb.enable=true"}, "logging.wandb.enable", "true"},
      {{"--report_to=wandb"}, "logging.wandb.enable", "true"},
      {{"--wandb_project=p"}, "logging.wandb.project", "p"},
      {{"--wandb_project_name=p"}, "logging.wandb.project", "p"},
      {{"--wandb.project=p"}, "logging.wandb.project", "p"},
      {{"logging.project=p"}, "logging.wandb.project", "p"},
      {{"--wandb_entity=e"}, "logging.wandb.entity", "e"},
      {{"--wandb.entity=e"}, "logging.wandb.entity", "e"},
      {{"--wandb.run_id=r"}, "logging.wandb.id", "r"},
      {{"--wandb_run_id=r"}, "logging.wandb.id", "r"},
      {{"--wandb.mode=offline"}, "logging.wandb.mode", "offline"},
      {{"logging.mode=online"}, "logging.wandb.mode", "online"},
      {{"--wandb.notes=words"}, "logging.wandb.notes", "words"},
      {{"--log_freq=7"}, "training.log_freq", "7"},
      {{"training.log_interval=7"}, "training.log_freq", "7"},
      {{"--val_freq=7"}, "training.val_freq", "7"},
      {{"--eval_steps=7"}, "training.val_freq", "7"},
      {{"--seed=0"}, "training.seed", "0"},
      {{"--drop_last"}, "training.drop_last", "true"},
      {{"data.drop_last=True"}, "training.drop_last", "true"},
      {{"dataloader.drop_last=True"}, "training.drop_last", "true"},
      {{"--find_unused_parameters"}, "training.find_unused_parameters", "true"},
      {{"--bucket_cap_mb=12.5"}, "training.bucket_mb", "12.5"},
      {{"--dtype=float64"}, "training.dtype", "float64"},
      {{"--tolerance_s=0.5"}, "dataset.tolerance_s", "0.5"},
      {{"--dataset_root=/d"}, "dataset.root", "/d"},
      {{"task.dataset.zarr_path=/d/a.zarr"}, "dataset.root", "/d/a.zarr"},
      {{"horizon=8"}, "policy.horizon", "8"},
      {{"n_obs_steps=3"}, "policy.n_obs_steps", "3"},
      {{"n_action_steps=6"}, "policy.n_action_steps", "6"},
      {{"policy.noise_scheduler.num_train_timesteps=50"}, "policy.num_train_timesteps", "50"},
      {{"policy.noise_scheduler.beta_start=0.5"}, "policy.beta_start", "0.5"},
      {{"policy.noise_scheduler.beta_end=0.5"}, "policy.beta_end", "0.5"},
      {{"policy.noise_scheduler.beta_schedule=squaredcos_cap_v2"}, "policy.beta_schedule", "squaredcos_cap_v2"},
      {{"policy.noise_scheduler.clip_sample=false"}, "policy.clip_sample", "false"},
      {{"policy.noise_scheduler.prediction_type=sample"}, "policy.prediction_type", "sample"},
      {{"--policy_path=/p"}, "policy.path", "/p"},
      {{"--resume"}, "resume", "\"true\""},
      {{"--resume=True"}, "resume", "\"true\""},
      {{"--resume", "latest"}, "resume", "\"true\""},
      {{"--resume", "auto"}, "resume", "auto"},
      {{"--resume=false"}, "resume", "\"\""},
      {{"--resume=/c/last"}, "resume", "/c/last"},
      {{"--resume_checkpoint", "/c/best"}, "resume", "/c/best"},
      {{"--resume_from_checkpoint=latest"}, "resume", "\"true\""},
      {{"--resume=true", "--checkpoint_path=/c/last"}, "resume", "/c/last"},
      {{"--checkpoint_path=/c/last", "--resume=true"}, "resume", "/c/last"},
      {{"--checkpoint_path=/c/last"}, "resume", "/c/last"},
      {{"--checkpoint_path=/c/last", "--resume=false"}, "resume", "\"\""},
      {{"training.resume=True"}, "resume", "auto"},
      {{"training.resume=False"}, "resume", "\"\""},
      {{"training.checkpoint_dir=/o"}, "output_dir", "/o"},
      {{"training.save_dir=/o"}, "output_dir", "/o"},
      {{"--save_dir=/o"}, "output_dir", "/o"},
      {{"multi_run.run_dir=/o"}, "output_dir", "/o"},
      {{"--job_name=n"}, "experiment_name", "\"n\""},
      {{"training.experiment_name=run"}, "experiment_name", "run"},
      {{"training.device=cuda:0"}, "device", "\"cuda:0\""},
      {{"--policy.device=cpu"}, "device", "cpu"},
      {{"--world_size", "4"}, "world_size", "4"},
      {{"--nproc_per_node=4"}, "world_size", "4"},
      {{"--num_processes=4"}, "world_size", "4"},
      {{"--port=12356"}, "master_port", "12356"},
      {{"--main_process_port=12356"}, "master_port", "12356"},
      {{"--main_process_ip=node0"}, "master_addr", "node0"},
  };
  std::set<std::string> tried;
  for (const Spelling& spelling : spellings) {
    SCOPED_TRACE(testing::PrintToString(spelling.arguments));
    const auto loaded = load(spelling.arguments);
    EXPECT_EQ(dumped(*loaded, spelling.option), spelling.value);
    for (const std::string& argument : spelling.arguments) {
      const size_t begin = argument.find_first_not_of('-');
      tried.insert(cxxrun::canonical_name(argument.substr(begin, argument.find('=') - begin)));
    }
  }
  for (const ConfigAlias& alias : config_aliases())
    EXPECT_TRUE(!alias.canonical || is_half_of_precision(alias) || tried.contains(alias.alias)) << alias.alias << " has no row here";
}

TEST(ConfigAliases, EveryRowNamesAnOptionAndEveryNameIsNew) {
  const auto loaded = load(std::vector<std::string>{});
  cxxrun::OptionTable& table = loaded->table;
  std::set<std::string> names;
  for (const ConfigAlias& alias : config_aliases()) {
    EXPECT_TRUE(!alias.canonical || is_half_of_precision(alias) || table.find(alias.canonical)) << alias.canonical;
    EXPECT_TRUE(!table.find(alias.alias) || std::string(alias.alias) == alias.canonical)
        << alias.alias << " hides an option";
    EXPECT_TRUE(names.insert(alias.alias).second) << alias.alias << " is there twice";
    EXPECT_EQ(alias.alias, cxxrun::canonical_name(alias.alias));
  }
}

TEST(ConfigAliases, OptionsWithoutEffectAreAcceptedWithOneNote) {
  for (const ConfigAlias& alias : config_aliases()) {
    if (!alias.note) continue;
    const ConfigSources sources = read({fmt::format("--{}=true", alias.alias)});
    ASSERT_EQ(sources.notes.size(), 1u) << alias.alias;
    EXPECT_THAT(sources.notes[0], HasSubstr(alias.alias));
    EXPECT_THAT(sources.notes[0], HasSubstr("has no effect"));
    EXPECT_NO_THROW(load(sources));
  }
}

TEST(ConfigAliases, ABareFlagDoesNotSwallowTheNextArgument) {
  const auto loaded = load({"--use_wandb", "training.steps=7", "--keep_effective_batch_size", "seed=3"});
  EXPECT_EQ(loaded->config.training.steps, 7);
  EXPECT_EQ(loaded->config.training.seed, 3);
}

TEST(ConfigAliases, AFeatureThatIsNotThereIsRefusedOnlyWhenAskedFor) {
  for (const char* harmless : {"--dataset.streaming=false", "--use_policy_training_preset=true", "--local_rank=1", "--local-rank=1"}) {
    const ConfigSources sources = read({harmless});
    EXPECT_TRUE(sources.notes.empty()) << harmless;
    EXPECT_NO_THROW(load(sources)) << harmless;
  }
  for (const char* refused : {"--dataset.streaming=true", "--use_policy_training_preset=false", "--report_to=comet_ml"}) {
    EXPECT_THROW(read({refused}), UsageError) << refused;
  }
}

TEST(ConfigAliases, PrecisionIsOneOptionInEverySpelling) {
  const auto precision = [](std::vector<std::string> arguments) { return load(std::move(arguments))->config.training.precision; };
  for (const char* none : {"--mixed_precision=no", "--mixed_precision=fp32", "model.vlm_config.dtype=torch.float32", "--use_mixed_precision=false",
                           "training.use_mixed_precision=False", "--policy.use_amp=false", "--mixed_precision_dtype=bfloat16"}) {
    EXPECT_EQ(precision({none}), "fp32") << none;
  }
  for (const char* bf16 : {"--mixed_precision=bf16", "model.vlm_config.dtype=torch.bfloat16", "--use_mixed_precision", "--policy.use_amp=true",
                           "--accelerator.mixed_precision=bf16", "--precision=bfp16", "--training.precision=bfloat16"}) {
    EXPECT_EQ(precision({bf16}), "bf16-mixed") << bf16;
  }
  EXPECT_EQ(precision({"--mixed_precision=fp16"}), "fp16-mixed");
  EXPECT_EQ(precision({"training.use_mixed_precision=true", "training.mixed_precision_dtype=float16"}), "fp16-mixed");
  EXPECT_EQ(precision({"--training.precision=tf32"}), "tf32");
  EXPECT_THAT(message_of<UsageError>([&] { precision({"--training.precision=bf61"}); }), HasSubstr("'bf61'"));
}

TEST(ConfigAliases, WandbAveragedWeightsAndAugmentationHaveTheirSections) {
  const auto loaded = load({"--use_wandb", "--wandb_project=robots", "--wandb.mode=offline", "--use_ema", "--ema.max_value=0.99",
                            "--dataset.image_transforms.enable", "training.checkpoint_every=300", "--checkpoints_total_limit=5"});
  const TrainConfig& config = loaded->config;
  EXPECT_TRUE(config.logging.wandb.enable);
  EXPECT_EQ(config.logging.wandb.project, "robots");
  EXPECT_EQ(config.logging.wandb.mode, "offline");
  EXPECT_TRUE(config.ema.enable);
  EXPECT_EQ(config.ema.decay, 0.99);
  EXPECT_TRUE(config.augment.enable);
  EXPECT_EQ(config.training.save_epochs, 300);
  EXPECT_EQ(config.training.keep_checkpoints, 5);
  EXPECT_TRUE(load({"--report_to=wandb"})->config.logging.wandb.enable);
}

TEST(ConfigAliases, AWrongValueNamesTheSpellingAndTheOption) {
  EXPECT_EQ(message_of<UsageError>([] { load({"--batch_size=x"}); }),
            "command line, batch_size: training.batch_size='x': expected an integer from 1 to 1048576");
  EXPECT_THAT(message_of<UsageError>([] { read({"--keep_effective_batch_size=x"}); }),
              HasSubstr("expected true or false"));
}

TEST(ConfigAliases, AreReadInYamlTooButNotTwiceForOneOption) {
  const cxxrun::TempDir folder;
  const std::string path = folder.path() / "x.yaml";
  cxxrun::write_file_atomically(path, "data:\n  batch_size: 3\n  pin_memory: true\n");
  const ConfigSources sources = read({"--config", path});
  EXPECT_EQ(load(sources)->config.training.batch_size, 3);
  EXPECT_THAT(sources.notes.at(0), HasSubstr(path + ":3: data.pin_memory has no effect"));
  cxxrun::write_file_atomically(path, "data:\n  batch_size: 3\ntraining:\n  batch_size: 4\n");
  EXPECT_EQ(
      message_of<UsageError>([&] {
        read({"--config", path});
      }),
      fmt::format("{}:4: 'training.batch_size' is already set at {}:2, data.batch_size; keep one of them", path, path));
}

}  // namespace
}  // namespace vla
