// What a user gets wrong: one message that names the thing and its remedy, the documented exit code, and nothing left behind.
#include "tests/worker/training/support.hpp"

namespace vla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct BadInput : TrainingTest {
  Words with(const Words& options) { return small_act(out("out"), options); }
};

TEST_F(BadInput, UnknownOptionsNameTheNearestOne) {
  EXPECT_THAT(run(0, with({"--traning.steps=3"}), 2).err(), AllOf(HasSubstr("traning.steps"), HasSubstr("did you mean 'training.steps'")));
}

TEST_F(BadInput, UnknownKeysOfAFileNameFileAndLine) {
  const auto file = out("config.yaml");
  std::ofstream(file) << "policy:\n  type: linear\ntraining:\n  batchsize: 8\n";
  EXPECT_THAT(run(0, {"--config", file.string()}, 2).err(), AllOf(HasSubstr("config.yaml:4"), HasSubstr("training.batch_size")));
}

TEST_F(BadInput, AMissingDatasetIsADataErrorThatNamesTheFolder) {
  const auto& result = run(2, with({"--dataset.root=/no/such/dataset"}), 5);
  EXPECT_THAT(result.err(), HasSubstr("/no/such/dataset"));
  EXPECT_TRUE(result.leaves_nothing());
}

TEST_F(BadInput, ATruncatedVideoIsADataErrorThatNamesTheFile) {
  const auto dataset = out("dataset");
  std::filesystem::copy(std::string(TEST_DATA_DIR) + "/lerobot_h264", dataset, std::filesystem::copy_options::recursive);
  std::filesystem::path video;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dataset)) {
    if (entry.path().extension() == ".mp4") video = entry.path();
  }
  std::filesystem::resize_file(video, std::filesystem::file_size(video) / 2);
  EXPECT_THAT(run(0, with({"--dataset.root=" + dataset.string()}), 5).err(), HasSubstr(video.filename().string()));
}

TEST_F(BadInput, ATruncatedCheckpointIsRefusedAndNamesTheFile) {
  run(0, with({"--training.steps=1"}));
  const auto model = out("out") / "checkpoints" / "000001" / "pretrained_model" / "model.safetensors";
  std::filesystem::resize_file(model, std::filesystem::file_size(model) - 1000);
  EXPECT_THAT(run(0, {"--resume=" + out("out").string(), "--training.steps=2"}, 2).err(), HasSubstr("model.safetensors is incomplete"));
}

TEST_F(BadInput, APolicyThatDoesNotFitTheDatasetIsRefused) {
  run(0, with({"--training.steps=1"}));
  const Words other{"--policy.path=" + (out("out") / "checkpoints" / "last").string(), "--output_dir=" + out("b").string(),
                    "--dataset.root=synthetic:frames=61,state=7,action=3,episodes=4,image=32x32", "--device=cpu"};
  EXPECT_THAT(run(0, other, 1).err(), HasSubstr("robot_state"));
}

TEST_F(BadInput, AForeignLauncherWithoutRanksIsRefusedAndNamesCxxrun) {
  cxxrun::testing::Launched result(worker(0, with({})), {.environment = {"SLURM_NTASKS=4", "RANK", "WORLD_SIZE"}});
  EXPECT_EQ(result.wait(), 2);
  EXPECT_THAT(result.err(), AllOf(HasSubstr("SLURM_NTASKS=4"), HasSubstr("cxxrun")));
}

TEST_F(BadInput, AWorldSizeThatTheLauncherContradictsIsRefused) {
  EXPECT_THAT(run(2, with({"--world_size=3"}), 2).err(), HasSubstr("world_size=3"));
}

TEST_F(BadInput, WorldSizeStartsThatManyRanksByItself) {
  EXPECT_THAT(run(0, with({"--world_size=2", "--training.steps=1"})).out(), HasSubstr("Distributed training: world_size=2, rank=1"));
}

TEST_F(BadInput, ADivergedTrainingSaysSo) {
  EXPECT_THAT(run(0, with({"--optimizer.lr=1e30", "--optimizer.grad_clip_norm=1e30", "--policy.optimizer_lr_backbone=1e30"}), 1).err(),
              AllOf(HasSubstr("loss"), HasSubstr("optimizer.lr")));
}

TEST_F(BadInput, ADryRunBuildsEverythingAndWritesNothing) {
  EXPECT_THAT(run(2, with({"--dry_run"})).out(), HasSubstr("dry run"));
  EXPECT_FALSE(std::filesystem::exists(out("out")));
}

TEST_F(BadInput, ShippedConfigurationsBuild) {
  const std::map<std::string, Words> left_to_the_user = {
      {"multi_gpu_template.yaml", {"--policy.type=linear", "--dataset.root=synthetic:frames=64,state=4,action=4,episodes=8"}},
      {"robot_dp_10.yaml", {"--dataset.root=synthetic:frames=256,state=10,action=10,image=240x320,episodes=8"}},
      {"robot_dp_14.yaml", {"--dataset.root=synthetic:frames=256,state=14,action=14,image=240x320,episodes=8"}},
      {"robot_dp_16.yaml", {"--dataset.root=synthetic:frames=256,state=16,action=16,image=240x320,episodes=8"}},
      {"smolvla.yaml", {"--policy.vlm_model_name=" PROJECT_DIR "/tests/data/tiny_smolvlm", "--policy.load_vlm_weights=false"}},
  };
  int configurations = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PROJECT_DIR "/configs")) {
    const auto options = left_to_the_user.find(entry.path().filename());
    run(0, Words{"--config", entry.path().string(), "--dry_run", "--device=cpu"} + (options == left_to_the_user.end() ? Words() : options->second));
    ++configurations;
  }
  EXPECT_GE(configurations, 2);
}

TEST_F(BadInput, ADumpedConfigurationTrainsTheSame) {
  const auto file = out("dump.yaml");
  std::ofstream(file) << run(0, with({"--training.steps=2", "--dump_config"})).out();
  run(0, {"--config", file.string(), "--output_dir=" + out("a").string()});
  run(0, with({"--training.steps=2"}));
  EXPECT_EQ(largest_difference(weights(out("a")), weights(out("out"))), 0);
}

TEST_F(BadInput, HelpNamesEveryCommandAndOption) {
  EXPECT_THAT(run(0, {"--help"}).out(), AllOf(HasSubstr("vla_worker info"), HasSubstr("cxxrun --nproc_per_node=2"), HasSubstr("--training.batch_size"),
                                              HasSubstr("--policy.chunk_size")));
}

TEST_F(BadInput, EvalReportsTheActionErrorAndStoresWhatItPredicted) {
  run(0, with({"--training.steps=1", "--dataset.val_episodes=1"}));
  const auto& eval = run(0, {"eval", out("out").string(), "--device=cpu", "--actions_file=" + out("actions").string()});
  EXPECT_THAT(eval.out(), AllOf(HasSubstr("open-loop action error"), HasSubstr("always the mean action")));
  const TensorMap stored = load_safetensors(out("actions"));
  EXPECT_EQ(stored.at("action").sizes(), (std::vector<int64_t>{8, 4, 3}));
  EXPECT_TRUE(stored.contains("observation.state"));
}

TEST_F(BadInput, InfoDescribesADatasetAndACheckpoint) {
  EXPECT_THAT(run(0, {"info", std::string(TEST_DATA_DIR) + "/lerobot_png"}).out(), AllOf(HasSubstr("150 frames"), HasSubstr("observation.wrist_image")));
  run(0, with({"--training.steps=1"}));
  EXPECT_THAT(run(0, {"info", out("out").string() + "/checkpoints/last"}).out(), AllOf(HasSubstr("policy act"), HasSubstr("trained for 1 steps")));
  EXPECT_THAT(run(0, {"info", "/no/such/thing"}, 5).err(), HasSubstr("/no/such/thing"));
}

}  // namespace
}  // namespace vla
