#include "worker/optim/lr_schedule.hpp"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/option_parse.hpp"

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

// scripts/reference/make_schedule_golden.py
TEST(LrSchedule, EqualsTorchAndDiffusers) {
  const auto rows = nlohmann::json::parse(cxxrun::read_file(TEST_DATA_DIR "/optim/schedules.json"));
  std::set<std::string> missing;
  for (const std::string& name : lr_schedule_names()) missing.insert(name);
  for (const auto& row : rows) {
    SchedulerOptions options;
    cxxrun::OptionTable table;
    options.describe(table);
    for (const auto& [name, value] : row["options"].items()) {
      cxxrun::Setting setting{.name = name};
      if (value.is_array()) setting.kind = cxxrun::Setting::Kind::kList;
      for (const auto& item : value.is_array() ? value : nlohmann::json::array({value}))
        setting.items.push_back(item.is_string() ? item.get<std::string>() : item.dump());
      cxxrun::apply_setting(table, setting);
    }
    missing.erase(options.type);
    const double peak = row["peak"];
    LrSchedule schedule(options, peak, row["total"]);
    EXPECT_EQ(schedule.needs_validation(), row.contains("losses"));
    for (size_t step = 0; step < row["lr"].size(); ++step) {
      const double lr = row["lr"][step];
      EXPECT_NEAR(schedule.factor(static_cast<int64_t>(step)) * peak, lr, 1e-13 * peak + 1e-12 * lr)
          << row["options"] << " at " << step;
      if (row.contains("losses") && step < row["losses"].size()) {
        const auto& loss = row["losses"][step];
        schedule.observe(loss.is_null() ? NAN : loss.get<double>());
      }
    }
  }
  EXPECT_THAT(missing, testing::ElementsAre("cosine_decay_with_warmup"));
}

TEST(LrSchedule, EveryShapeStaysBetweenZeroAndOne) {
  for (const std::string& type : lr_schedule_names()) {
    for (const int64_t warmup : {0, 1, 7, 30}) {
      SchedulerOptions options{.type = type, .warmup_steps = warmup, .decay_steps = 20, .decay_lr = 1e-5};
      options.step_size = 5;
      options.milestones = {3, 9};
      options.step_rules = "1:5,0.5";
      const LrSchedule schedule(options, 1e-4, 13);
      for (int64_t step = 0; step < 50; ++step) {
        const double factor = schedule.factor(step);
        EXPECT_TRUE(factor >= 0 && factor <= 1) << type << " at " << step << ": " << factor;
        if (step < warmup && type != "cosine_decay_with_warmup") {
          EXPECT_LE(factor, static_cast<double>(step) / static_cast<double>(warmup)) << type;
        }
      }
    }
  }
}

TEST(LrSchedule, OtherProgramsNamesMeanTheSame) {
  const std::pair<const char*, const char*> same[] = {{"StepLR", "step"},
                                                      {"MultiStepLR", "multi_step"},
                                                      {"ExponentialLR", "exponential"},
                                                      {"CosineAnnealingLR", "cosine_annealing"},
                                                      {"LinearLR", "linear_ramp"},
                                                      {"OneCycleLR", "one_cycle"},
                                                      {"cosine_annealing_with_warmup", "cosine"},
                                                      {"diffuser", "polynomial"}};
  for (const auto& [spelling, name] : same) {
    SchedulerOptions options{.type = spelling, .warmup_steps = 4};
    options.name = "polynomial";
    options.step_size = 6;
    options.milestones = {5};
    const LrSchedule one(options, 1e-4, 20);
    options.type = name;
    const LrSchedule other(options, 1e-4, 20);
    for (int64_t step = 0; step < 20; ++step) EXPECT_EQ(one.factor(step), other.factor(step)) << spelling << step;
  }
  EXPECT_THAT(lr_schedule_spellings(), testing::IsSupersetOf({"StepLR", "ReduceLROnPlateau", "diffuser"}));
}

TEST(LrSchedule, PlateauContinuesFromItsState) {
  SchedulerOptions options{.type = "ReduceLROnPlateau"};
  options.patience = 1;
  options.cooldown = 1;
  LrSchedule straight(options, 1e-3, 10), before(options, 1e-3, 10), after(options, 1e-3, 10);
  after.load_state({});  // a new run
  const std::vector<double> losses = {1, 2, 2, 2, 2, 2, 0.5, 2, 2};
  for (size_t i = 0; i < losses.size(); ++i) {
    straight.observe(losses[i]);
    (i < 4 ? before : after).observe(losses[i]);
    if (i == 3) after.load_state(before.state());
  }
  EXPECT_LT(straight.factor(9), 0.1);
  EXPECT_EQ(straight.factor(9), after.factor(9));
  EXPECT_EQ(straight.state(), after.state());
  EXPECT_THROW(after.load_state({{"scale", 1}}), cxxrun::Error);
  EXPECT_THROW(after.load_state({{"scale", NAN}, {"best", 1}, {"bad_validations", 0}, {"cooldown", 0}}), cxxrun::Error);
  EXPECT_TRUE(LrSchedule({"cosine", 0, 0, 0}, 1e-4, 10).state().empty());
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
  EXPECT_THROW(LrSchedule({"polynomial", 0, 0, 0}, 1e-8, 10), cxxrun::UsageError);
  EXPECT_THROW(LrSchedule({"step", 0, 0, 0}, 1e-4, 10), cxxrun::UsageError);
  EXPECT_THROW(LrSchedule({"multi_step", 0, 0, 0}, 1e-4, 10), cxxrun::UsageError);
  SchedulerOptions options{.type = "piecewise_constant"};
  for (const char* rules :
       {"", "1:", "1:10", "1:10,", "1;10,0.1", "1:x,0.1", "0.1 0.2", "-1:10,1", "nan", "1:10,0.1:20"}) {
    options.step_rules = rules;
    EXPECT_THROW(LrSchedule(options, 1e-4, 10), cxxrun::UsageError) << rules;
  }
}

}  // namespace
}  // namespace vla
