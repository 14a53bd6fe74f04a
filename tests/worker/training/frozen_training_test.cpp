// training.frozen_cache: a training from features that were computed once is the training from images.
#include "tests/worker/training/support.hpp"

namespace vla {
namespace {

using testing::HasSubstr;

struct FrozenTraining : TrainingTest {
  Words smolvla(const std::string& name, const Words& options) {
    return Words{"--policy.type=smolvla", "--policy.vlm_model_name=" PROJECT_DIR "/tests/data/tiny_smolvlm", "--policy.load_vlm_weights=false",
                 "--policy.chunk_size=4", "--policy.n_action_steps=4", "--policy.resize_imgs_with_padding=[64,64]",
                 "--dataset.root=synthetic:frames=21,state=4,action=3,episodes=3,image=32x32,cameras=2,task_count=2", "--training.batch_size=4",
                 "--training.steps=8", "--training.log_freq=1", "--training.save_freq=0", "--training.num_workers=1",
                 cxxrun::testing::device_option(), "--output_dir=" + out(name).string()} + options;
  }
  std::vector<double> losses(const std::string& name) {
    std::vector<double> losses;
    for (const auto& line : metrics(out(name))) losses.push_back(line.at("loss").get<double>());
    return losses;
  }
};

TEST_F(FrozenTraining, HasTheLossesOfTrainingFromImages) {
  for (const std::string mode : {"reference", "fast"}) {
    const Words speed{"--speed.mode=" + mode};
    run(1, smolvla(mode, speed));
    const std::vector<double> expected = losses(mode);
    ASSERT_EQ(expected.size(), 8);
    for (const std::string level : {"vision", "prefix"}) {
      const auto& cached = run(1, smolvla(mode + level, speed + Words{"--training.frozen_cache=" + level}));
      EXPECT_THAT(cached.out(), HasSubstr("Frozen features (" + level + "): 21 samples"));
      const std::vector<double> actual = losses(mode + level);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-5 * expected[i]) << mode << " " << level << ", step " << i + 1;
    }
  }
}

TEST_F(FrozenTraining, RanksShareAFileThatLaterRunsUse) {
  const Words cached{"--training.frozen_cache=prefix", "--data.cache_dir=" + out("cache").string()};
  run(1, smolvla("plain", {}));
  run(2, smolvla("first", cached));
  const auto& second = run(2, smolvla("second", cached));
  EXPECT_THAT(second.out(), HasSubstr("0 of them to be made by this rank"));
  const auto expected = losses("plain"), first = losses("first");
  ASSERT_EQ(first.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(first[i], expected[i], 1e-5 * expected[i]) << "step " << i + 1;
  EXPECT_EQ(losses("second"), first);
}

TEST_F(FrozenTraining, IsRefusedWithAugmentation) {
  EXPECT_THAT(run(1, smolvla("a", {"--training.frozen_cache=vision", "--augment.enable"}), 2).err(), HasSubstr("augment.enable"));
}

}  // namespace
}  // namespace vla
