// Whole steps as CUDA graphs: what they compute is what the same kernels compute when each is launched by itself.
#include "tests/worker/training/support.hpp"

namespace vla {
namespace {

using cxxrun::testing::device_option;
using testing::HasSubstr;

struct StepGraph : TrainingTest {
  // 20 steps: 11 as they are, then graphs; random numbers, rates and averages change from step to step.
  Words small(const std::string& name, const Words& options = {}) {
    return small_act(out(name), Words{"--scheduler.type=cosine", "--scheduler.warmup_steps=4", "--ema.enable", "--ema.update_after_step=2",
                                      "--speed.mode=fast", "--speed.deterministic"} + options);
  }
  // The same from both.
  void expect_same_training(const std::string& left, const std::string& right) {
    EXPECT_EQ(largest_difference(weights(out(left)), weights(out(right))), 0) << right;
    EXPECT_EQ(largest_difference(averaged_weights(out(left)), averaged_weights(out(right))), 0) << right << ", averaged";
    const auto expected = metrics(out(left)), actual = metrics(out(right));
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      for (const char* key : {"loss", "l1_loss", "kld_loss", "lr", "grad_norm"}) EXPECT_EQ(actual[i].at(key), expected[i].at(key)) << key << " at step " << i + 1;
    }
  }
};

TEST_F(StepGraph, NeedsAGpu) {
  if (device_option() != "--device=cpu") GTEST_SKIP() << "of the CPU";
  EXPECT_THAT(run(1, small("a", {"--speed.graph=on"}), 2).err(), HasSubstr("speed.graph = on, but training runs on the CPU"));
}

TEST_F(StepGraph, GivesTheBitsOfKernelsLaunchedOneByOne) {
  if (device_option() == "--device=cpu") GTEST_SKIP() << "no GPU";
  for (const Words& options : {Words{}, Words{"--training.precision=bf16-true"}, Words{"--training.precision=fp16-mixed"},
                               Words{"--training.batch_size=4", "--training.gradient_accumulation_steps=2"}}) {
    const std::string name = options.empty() ? "fp32" : options.back();
    run(1, small("off" + name, options + Words{"--speed.graph=off"}));
    run(1, small("on" + name, options + Words{"--speed.graph=on"}));
    expect_same_training("off" + name, "on" + name);
  }
}

TEST_F(StepGraph, GivesTheBitsOfSeveralRanksWhoseGradientsTravelInBfloat16) {
  if (torch::cuda::device_count() < 2 || device_option() == "--device=cpu") GTEST_SKIP() << "needs two GPUs";
  const Words options{"--training.gradient_dtype=bfloat16", "--training.bucket_mb=0.02"};
  run(2, small("off", options + Words{"--speed.graph=off"}));
  run(2, small("on", options + Words{"--speed.graph=on"}));
  expect_same_training("off", "on");
}

// At the averages of float64 weights, when the gradients of the step are there already.
TEST_F(StepGraph, ACaptureThatFailsChangesNothing) {
  if (device_option() == "--device=cpu") GTEST_SKIP() << "no GPU";
  run(1, small("off", {"--training.dtype=float64", "--speed.graph=off"}));
  EXPECT_THAT(run(1, small("on", {"--training.dtype=float64"})).err(), HasSubstr("cannot be captured as a CUDA graph"));
  expect_same_training("off", "on");
}

TEST_F(StepGraph, SaysWhyAStepIsNotOne) {
  if (device_option() == "--device=cpu") GTEST_SKIP() << "no GPU";
  EXPECT_THAT(run(1, small("a", {"--speed.graph=on", "--training.find_unused_parameters"}), 2).err(), HasSubstr("speed.graph = on, but training.find_unused_parameters"));
}

}  // namespace
}  // namespace vla
