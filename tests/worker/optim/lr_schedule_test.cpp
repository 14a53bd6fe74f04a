#include "worker/optim/lr_schedule.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"

namespace vla {
namespace {

using testing::HasSubstr;

struct Row {
  const char* type;
  int64_t warmup, decay;
  double decay_lr, peak;
  int64_t total;
  std::vector<std::pair<int64_t, double>> lr;  // at step
};

TEST(LrSchedule, EqualsLeRobotsAndDiffusersVectors) {
  constexpr char kLeRobot[] = "cosine_decay_with_warmup";
  const Row rows[] = {
      {kLeRobot,
       1000,
       30000,
       2.5e-6,
       1e-4,
       100'000,
       {{0, 9.990009990009991e-08},
        {500, 5.0049950049950055e-05},
        {999, 9.990009990009991e-05},
        {1000, 9.973294239920334e-05},
        {15000, 5.125e-05},
        {30000, 2.5e-6},
        {99999, 2.5e-6}}},
      {kLeRobot,
       1000,
       30000,
       2.5e-6,
       1e-4,
       3000,
       {{0, 9.900990099009902e-07}, {50, 5.0495049504950497e-05}, {100, 9.973294239920334e-05}, {3000, 2.5e-6}}},
      {kLeRobot, 10, 90, 0.0001, 0.001, 100, {{1, 0.0001818181818181819}}},
      {"constant", 0, 0, 0, 1e-4, 10, {{0, 1e-4}, {9, 1e-4}, {1000, 1e-4}}},
      {"constant", 4, 0, 0, 1e-4, 10, {{0, 0}, {1, 2.5e-5}, {4, 1e-4}, {9, 1e-4}}},
      {"linear", 2, 0, 0, 1, 12, {{0, 0}, {1, 0.5}, {2, 1}, {7, 0.5}, {12, 0}, {20, 0}}},
      {"linear", 0, 10, 0.5, 1, 100, {{0, 1}, {5, 0.75}, {10, 0.5}, {99, 0.5}}},
      {"cosine", 0, 0, 0, 1, 10, {{0, 1}, {5, 0.5}, {10, 0}, {15, 0}}},
      {"cosine", 20, 0, 0, 1, 10, {{0, 0}, {10, 0.5}}},  // training shorter than its warm-up
  };
  for (const Row& row : rows) {
    const LrSchedule schedule({row.type, row.warmup, row.decay, row.decay_lr}, row.peak, row.total);
    for (const auto& [step, lr] : row.lr) {
      EXPECT_NEAR(schedule.factor(step) * row.peak, lr, 1e-13 + 1e-12 * lr)
          << row.type << " of " << row.total << " at " << step;
    }
  }
}

TEST(LrSchedule, EqualsRecordedRunsOfLeRobot) {
  const auto recorded = nlohmann::json::parse(cxxrun::read_file(TEST_DATA_DIR "/optim/lr_schedules.json"));
  for (const auto& [name, run] : recorded.items()) {
    const SchedulerOptions options = name.starts_with("smolvla")
                                         ? SchedulerOptions{"cosine_decay_with_warmup", 1000, 30000, 2.5e-6}
                                         : SchedulerOptions{"cosine", 500, 0, 0};
    const LrSchedule schedule(options, 1e-4, run["total_steps"].get<int64_t>());
    for (const auto& [step, lr] : run["lr"].items()) {
      EXPECT_NEAR(1e-4 * schedule.factor(std::stoll(step)), lr.get<double>(), 1e-12 * lr.get<double>() + 1e-18)
          << name << " at " << step;
    }
  }
}

TEST(LrSchedule, EveryShapeStaysBetweenZeroAndOne) {
  for (const std::string& type : lr_schedule_names()) {
    for (const int64_t warmup : {0, 1, 7}) {
      const LrSchedule schedule({type, warmup, 20, 1e-5}, 1e-4, 13);
      for (int64_t step = 0; step < 40; ++step) {
        const double factor = schedule.factor(step);
        EXPECT_TRUE(factor >= 0 && factor <= 1) << type << " at " << step << ": " << factor;
      }
    }
  }
}

TEST(LrSchedule, BadOptionsNameKeyAndValue) {
  try {
    LrSchedule({"cosin", 0, 0, 0}, 1e-4, 10);
    FAIL();
  } catch (const cxxrun::UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("unknown scheduler.type 'cosin'"));
    EXPECT_THAT(e.what(), HasSubstr("did you mean 'cosine'"));
  }
  EXPECT_THROW(LrSchedule({"cosine", 0, 0, 1e-3}, 1e-4, 10), cxxrun::UsageError);
}

}  // namespace
}  // namespace vla
