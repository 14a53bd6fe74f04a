// vla_worker bench as a user runs it.
#include <fstream>

#include "tests/worker/training/support.hpp"

namespace vla {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Bench : TrainingTest {
  Words bench(const Words& own) { return Words{"bench"} + small_act(out("run")) + own; }
};

TEST_F(Bench, PrintsOneJsonObjectAndLeavesNothingBehind) {
  const auto& done = run(0, bench({"--json", "--steps", "3", "--warmup", "2"}));
  const json report = json::parse(done.out());
  EXPECT_EQ(report["policy"], "act");
  EXPECT_EQ(report["steps"], 3);
  EXPECT_EQ(report["batch"]["effective"], 8);
  EXPECT_EQ(report["ranks"], 1);
  EXPECT_GT(report["parameters"], 0);
  const double step_ms = report["step_ms"];
  EXPECT_NEAR(report["samples_per_s"].get<double>() * step_ms / 1e3, 8, 4);  // an epoch's last batch has 5
  double phases = 0;
  for (const char* phase : {"data", "forward", "backward", "exposed_communication", "optimizer"}) {
    EXPECT_GE(report["phases_ms"][phase], 0) << phase;
    phases += report["phases_ms"][phase].get<double>();
  }
  EXPECT_LE(phases, 1.1 * step_ms);
  EXPECT_GT(phases, 0.5 * step_ms);
  for (const char* phase : {"program loaded", "dataset opened", "policy built", "first batch", "first step"}) {
    EXPECT_GT(report["start"]["phases"].value(phase, 0.0), 0) << phase;
  }
  EXPECT_FALSE(std::filesystem::exists(out("run")));
}

TEST_F(Bench, MeasuresSeveralRanksTogether) {
  const auto file = out("report.json").string();
  run(2, bench({"--json=" + file, "--steps=3", "--warmup=1", "--resident"}));
  std::ifstream text(file);
  const json report = json::parse(text);
  EXPECT_EQ(report["ranks"], 2);
  EXPECT_EQ(report["batch"]["per_gpu"], 4);
  EXPECT_TRUE(report["resident"]);
  EXPECT_NEAR(report["samples_per_s"].get<double>(), 2 * report["samples_per_s_per_gpu"].get<double>(), 1e-6);
}

TEST_F(Bench, WritesATraceOfTheStepsAfterTheMeasuredOnes) {
  const auto& done = run(0, bench({"--steps=2", "--warmup=1", "--profile=2", "--profile_dir=" + out("traces").string(), "--timing"}));
  EXPECT_THAT(done.out(), HasSubstr("samples/s"));
  EXPECT_THAT(done.out(), HasSubstr("program loaded"));
  std::ifstream file(out("traces") / "rank0.json");
  const auto events = json::parse(file).at("traceEvents");
  for (const char* name : {"data", "forward", "backward", "optimizer", "aten::mm"}) {
    EXPECT_TRUE(std::ranges::any_of(events, [&](const json& event) { return event.value("name", "") == name; })) << name;
  }
}

TEST_F(Bench, TrainingWritesATraceAndItsTimingToo) {
  const auto& done = run(0, small_act(out("run"), {"--training.steps=4", "--profile=2", "--timing"}));
  EXPECT_THAT(done.out(), HasSubstr("first step"));
  std::ifstream file(out("run") / "profile" / "rank0.json");
  const json trace = json::parse(file);
  const auto is_update = [](const json& event) { return event.value("name", "") == "optimizer" && event.value("cat", "") == "user_annotation"; };
  EXPECT_EQ(std::ranges::count_if(trace.at("traceEvents"), is_update), 2);
}

TEST_F(Bench, RefusesWhatMakesNoSense) {
  EXPECT_THAT(run(0, bench({"--steps=0"}), 2).err(), HasSubstr("steps"));
  EXPECT_THAT(run(0, bench({"--resume=true"}), 2).err(), HasSubstr("--policy.path"));
  EXPECT_THAT(run(0, bench({"--dry_run"}), 2).err(), HasSubstr("dry_run"));
  EXPECT_THAT(run(0, bench({"--warm_up=3"}), 2).err(), HasSubstr("warm_up"));
}

}  // namespace
}  // namespace vla
