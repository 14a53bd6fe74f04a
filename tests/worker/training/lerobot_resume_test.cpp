// A run that LeRobot's own lerobot-train began goes on here.
#include "tests/worker/training/support.hpp"

namespace vla {
namespace {

const std::filesystem::path kRun = TEST_DATA_DIR "/lerobot_resume";

struct LeRobotResume : TrainingTest {
  Words from(const std::string& path, const Words& more = {}) {
    return Words{"--resume=" + (kRun / path).string(), "--dataset.root=" + (kRun / "dataset").string(), "--output_dir=" + out("run").string(),
                 "--device=cpu", "--log_freq=1"} +
           more;
  }
};

// A bias of attention keys has no gradient but rounding noise, which Adam turns into steps of any size.
double distance(const TensorMap& left, const TensorMap& right) {
  double largest = 0;
  for (const auto& [name, tensor] : left) {
    if (!name.ends_with("in_proj_bias")) largest = std::max(largest, (tensor - right.at(name)).abs().max().item<double>());
  }
  return largest;
}

TEST_F(LeRobotResume, EndsWhereLeRobotsOwnRunEnded) {
  const auto& result = run(0, from("checkpoints/000003"));
  EXPECT_THAT(result.out(), testing::HasSubstr("after step 3 of 5"));
  const TensorMap start = load_safetensors(kRun / "checkpoints/000003/pretrained_model/model.safetensors");
  const TensorMap expected = load_safetensors(kRun / "after_5_steps.safetensors"), ours = weights(out("run"));
  EXPECT_GT(distance(expected, start), 1e-3);  // two steps of Adam at 1e-3
  EXPECT_LE(distance(expected, ours), 1e-5);
  EXPECT_LE(largest_difference(expected, ours), 2e-4);
  EXPECT_EQ(metrics(out("run")).size(), 2);
}

TEST_F(LeRobotResume, AnotherBatchIsRefused) {
  EXPECT_THAT(run(0, from("", {"--batch_size=4"}), 2).err(), testing::HasSubstr("samples per step: 8 -> 4"));
}

TEST_F(LeRobotResume, ItsOwnContinuationIsOneOfOurs) {
  run(0, from("checkpoints/000003", {"--steps=4"}));
  run(0, {"--resume=" + out("run").string(), "--steps=5", "--device=cpu"});
  EXPECT_LE(distance(load_safetensors(kRun / "after_5_steps.safetensors"), weights(out("run"))), 1e-5);
}

}  // namespace
}  // namespace vla
