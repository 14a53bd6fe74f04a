#include "worker/run_plan.hpp"

#include <cstdlib>
#include <ctime>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"

namespace vla {
namespace {

using cxxrun::UsageError;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ResolveBatch, GivesPerGpuAndEffectiveSizes) {
  struct Row {
    int64_t batch;
    const char* mode;
    int64_t world, accumulation, per_gpu, global, effective;
    const char* warning;
  };
  const Row rows[] = {
      {8, "total", 4, 1, 2, 8, 8, ""},           {8, "per_gpu", 4, 1, 8, 32, 32, ""},
      {16, "per_gpu", 4, 1, 16, 64, 64, ""},     {4, "total", 4, 1, 1, 4, 4, ""},
      {32, "total", 4, 1, 8, 32, 32, ""},        {64, "total", 4, 1, 16, 64, 64, ""},
      {16, "total", 2, 2, 8, 16, 32, ""},        {12, "total", 2, 2, 6, 12, 24, ""},
      {8, "per_gpu", 4, 4, 8, 32, 128, ""},      {8, "total", 1, 1, 8, 8, 8, ""},
      {8, "per_gpu", 1, 1, 8, 8, 8, ""},         {9, "total", 4, 1, 3, 9, 9, "8 or 12 would waste nothing"},
      {8, "total", 3, 1, 3, 8, 8, "6 or 9"},     {3, "total", 4, 1, 1, 3, 3, "at least 4"},
      {1, "total", 8, 2, 1, 1, 2, "at least 8"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::Message() << row.batch << " " << row.mode << " on " << row.world);
    const BatchPlan plan = resolve_batch(row.batch, row.mode, row.world, row.accumulation);
    EXPECT_EQ(plan.per_gpu, row.per_gpu);
    EXPECT_EQ(plan.global, row.global);
    EXPECT_EQ(plan.accumulation, row.accumulation);
    EXPECT_EQ(plan.effective, row.effective);
    ASSERT_EQ(plan.warnings.size(), *row.warning ? 1u : 0u);
    for (const std::string& warning : plan.warnings) EXPECT_THAT(warning, HasSubstr(row.warning));
  }
}

TEST(ResolveLr, ScalesByRanksOrTheirRoot) {
  EXPECT_DOUBLE_EQ(resolve_lr(4e-4, "none", 4, "per_gpu").lr, 4e-4);
  EXPECT_DOUBLE_EQ(resolve_lr(4e-4, "linear", 4, "per_gpu").lr, 1.6e-3);
  EXPECT_DOUBLE_EQ(resolve_lr(4e-4, "sqrt", 4, "per_gpu").lr, 8e-4);
  EXPECT_THAT(resolve_lr(4e-4, "linear", 4, "per_gpu").warnings, IsEmpty());
  EXPECT_THAT(resolve_lr(1e-4, "linear", 4, "total").warnings, ElementsAre(HasSubstr("effective batch does not grow")));
  EXPECT_THAT(resolve_lr(1e-4, "linear", 1, "total").warnings, IsEmpty());
}

TEST(ResolveSteps, EndsAtTheFirstLimitReached) {
  EXPECT_EQ(resolve_steps(0, 0, 10), 100000);
  EXPECT_EQ(resolve_steps(25, 0, 10), 25);
  EXPECT_EQ(resolve_steps(0, 3, 10), 30);
  EXPECT_EQ(resolve_steps(25, 3, 10), 25);
  EXPECT_EQ(resolve_steps(25, 2, 10), 20);
  EXPECT_THROW(resolve_steps(0, INT64_MAX, 10), UsageError);
}

TEST(ResolveWorkers, AutoSharesTheCoresAndManyThreadsWarn) {
  EXPECT_EQ(resolve_workers(-1, 2, 2).per_rank, 1);
  EXPECT_EQ(resolve_workers(-1, 4, 2).per_rank, 0);
  EXPECT_EQ(resolve_workers(-1, 1, 64).per_rank, 8);
  EXPECT_EQ(resolve_workers(-1, 8, 64).total, 64);
  EXPECT_EQ(resolve_workers(0, 8, 2).total, 0);
  EXPECT_THAT(resolve_workers(8, 2, 8).warnings, IsEmpty());
  EXPECT_THAT(resolve_workers(8, 2, 2).warnings, ElementsAre(HasSubstr("16 decoding threads for 2 cores; 1 would do")));
}

TEST(SplitEpisodes, HoldsOutTheLastOfEveryTask) {
  const std::vector<int64_t> tasks = {0, 0, 1, 0, 1, 1};
  EpisodeSplit split = split_episodes(tasks, 1, 0);
  EXPECT_THAT(split.training, ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(split.validation, ElementsAre(3, 5));
  split = split_episodes(tasks, 0, 0.67);
  EXPECT_THAT(split.training, ElementsAre(0, 2));
  EXPECT_THAT(split.validation, ElementsAre(1, 3, 4, 5));
}

TEST(SplitEpisodes, AlwaysLeavesATaskOneEpisodeToTrainOn) {
  EXPECT_THAT(split_episodes({0, 0, 1}, 5, 0).training, ElementsAre(0, 2));
  EXPECT_THAT(split_episodes({0}, 0, 0.9).validation, IsEmpty());
  EXPECT_THAT(split_episodes({0, 0}, 0, 0).validation, IsEmpty());
  EXPECT_THAT(split_episodes({0, 0}, 0, 0.01).validation, ElementsAre(1));
  EXPECT_THAT(split_episodes({}, 1, 0).training, IsEmpty());
}

TEST(DefaultOutputDir, DatesTheFolderByTheLaunch) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(default_output_dir("", 1736944496), "outputs/20250115_123456");
  EXPECT_EQ(default_output_dir("my_experiment", 1736944496), "experiments/my_experiment_20250115_123456");
}

}  // namespace
}  // namespace vla
