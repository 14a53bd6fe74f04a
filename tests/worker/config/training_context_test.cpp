#include "worker/training_context.hpp"

#include <numeric>

#include <gmock/gmock.h>

namespace vla {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

TEST(TrainingContext, SaysNothingBeforeATrainingBegins) {
  const TrainingContext context;
  EXPECT_EQ(describe(context.position()), "");
  EXPECT_EQ(describe(context.position().sizes), "");
}

TEST(TrainingContext, NamesRankStepPhaseAndSamples) {
  TrainingContext context;
  context.set_sizes(1, {.batch_size = 8, .per_gpu = 4, .accumulation = 2, .effective = 16, .world_size = 2, .num_workers = 3, .precision = "float32", .device = "cuda:1"});
  context.begin_step(13, 20);
  context.enter("forward pass");
  context.set_samples({3, 5, 8});
  EXPECT_EQ(describe(context.position()), "rank 1, step 13 of 20, forward pass, samples 3 5 8");
  EXPECT_THAT(describe(context.position().sizes), AllOf(HasSubstr("batch_size=8 (4 per rank on 2 ranks)"), HasSubstr("accumulation_steps=2, 16 samples"),
                                                        HasSubstr("num_workers=3"), HasSubstr("float32 on cuda:1")));
}

TEST(TrainingContext, ANewStepHasNoSamplesYet) {
  TrainingContext context;
  context.set_samples({3, 5, 8});
  context.begin_step(14, 20);
  EXPECT_EQ(describe(context.position()), "rank 0, step 14 of 20");
}

TEST(TrainingContext, LongListsOfSamplesAreCutShort) {
  std::vector<int64_t> samples(1000);
  std::iota(samples.begin(), samples.end(), 0);
  EXPECT_THAT(describe(TrainingPosition{.step = 1, .total_steps = 2, .samples = samples}), EndsWith("62 63 and 936 more"));
}

}  // namespace
}  // namespace vla
