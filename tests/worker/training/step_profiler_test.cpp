// Traces of some steps, as a viewer reads them.
#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "tests/support/temp_dir.hpp"
#include "worker/phase_range.hpp"
#include "worker/step_profiler.hpp"

namespace vla {
namespace {

std::vector<std::string> names_in(const std::filesystem::path& trace) {
  std::ifstream file(trace);
  std::vector<std::string> names;
  const auto trace_json = nlohmann::json::parse(file);
  for (const auto& event : trace_json.at("traceEvents")) names.push_back(event.value("name", ""));
  return names;
}

void step(torch::Tensor& weight) {
  torch::Tensor loss;
  {
    const PhaseRange range("forward");
    loss = weight.matmul(weight).sum();
  }
  const PhaseRange range("backward");
  loss.backward();
}

TEST(StepProfiler, RecordsTheStepsAskedForWithTheirPhasesAndOperations) {
  const cxxrun::TempDir folder;
  const auto file = folder.path() / "traces" / "rank0.json";
  StepProfiler profiler(2, 3, file, at::kCPU);
  auto weight = torch::ones({4, 4}, torch::requires_grad());
  for (int64_t i = 0; i < 10; ++i) {
    profiler.before_step(i);
    EXPECT_EQ(std::filesystem::exists(file), i >= 5);
    step(weight);
  }
  profiler.finish();
  const auto names = names_in(file);
  EXPECT_EQ(std::ranges::count(names, "forward"), 3);
  EXPECT_EQ(std::ranges::count(names, "backward"), 3);
  EXPECT_EQ(std::ranges::count(names, "aten::matmul"), 3);
}

TEST(StepProfiler, WritesWhatItHasWhenTrainingEndsFirst) {
  const cxxrun::TempDir folder;
  StepProfiler profiler(0, 5, folder.path() / "rank0.json", at::kCPU);
  auto weight = torch::ones({4, 4}, torch::requires_grad());
  profiler.before_step(0);
  step(weight);
  profiler.finish();
  EXPECT_THAT(names_in(profiler.file()), testing::Contains("forward"));
}

TEST(StepProfiler, DoesNothingForNoSteps) {
  const cxxrun::TempDir folder;
  StepProfiler profiler(0, 0, folder.path() / "rank0.json", at::kCPU);
  profiler.before_step(0);
  profiler.finish();
  EXPECT_FALSE(profiler.is_written());
  EXPECT_FALSE(std::filesystem::exists(profiler.file()));
}

}  // namespace
}  // namespace vla
