#include "worker/optim/grad_scaler.hpp"

#include <gmock/gmock.h>
#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "worker/optim/optimizer.hpp"

namespace vla {
namespace {

std::vector<at::Device> devices() {
  std::vector<at::Device> devices = {torch::kCPU};
  if (torch::cuda::is_available()) devices.emplace_back(torch::kCUDA, 0);
  return devices;
}

// scripts/reference/make_grad_scaler_golden.py
torch::Tensor six_values(double phase) {
  return torch::sin(torch::arange(6, torch::kDouble) * 0.7 + phase).to(torch::kFloat);
}

// "number of ranks" copies of the flag are added up, as an all-reduce would.
void equals_torch(at::Device device, double ranks) {
  const auto golden = nlohmann::json::parse(cxxrun::read_file(TEST_DATA_DIR "/optim/grad_scaler.json"));
  const auto& o = golden["options"];
  GradScaler scaler({.init_scale = o["init_scale"],
                     .growth_factor = o["growth_factor"],
                     .backoff_factor = o["backoff_factor"],
                     .growth_interval = static_cast<int64_t>(o["growth_interval"].get<double>())},
                    device);
  torch::Tensor w = six_values(0).to(device).requires_grad_();
  const OptimizerOptions options{.lr = 0.1, .beta2 = 0.99, .weight_decay = 0.03, .grad_clip_norm = 1};
  Optimizer optimizer({{"all", 0, {{"w", w}}}}, options);
  int64_t skipped = 0;
  for (size_t k = 0; k < golden["steps"].size(); ++k) {
    const auto& expected = golden["steps"][k];
    torch::Tensor factor = six_values(static_cast<double>(k));
    const auto bad = golden["bad"].find(std::to_string(k));
    if (bad != golden["bad"].end()) {
      factor[3] = std::stod(bad->get<std::string>());
      ++skipped;
    }
    optimizer.zero_grad();
    scaler.scale((w * factor.to(device)).sum()).backward();
    scaler.unscale(optimizer.gradients());
    scaler.found_inf() *= ranks;
    const torch::Tensor norm = optimizer.clip_grad_norm();
    EXPECT_EQ(norm.isfinite().item<bool>(), !expected["norm"].is_null()) << k;
    if (!expected["norm"].is_null()) {
      EXPECT_NEAR(norm.item<double>(), expected["norm"].get<double>(), 1e-6) << k;
    }
    optimizer.step(scaler.found_inf());
    scaler.update();
    EXPECT_EQ(scaler.current().item<double>(), expected["scale"].get<double>()) << k;
    EXPECT_EQ(scaler.state().at("growth_tracker").item<int64_t>(), expected["growth_tracker"].get<int64_t>()) << k;
    EXPECT_EQ(optimizer.state().at("w.step").item<int64_t>(), expected["optimizer_steps"].get<int64_t>()) << k;
    EXPECT_EQ(optimizer.skipped_steps().item<int64_t>(), skipped) << k;
    const torch::Tensor reference = torch::tensor(expected["w"].get<std::vector<double>>(), torch::kDouble);
    EXPECT_LE((w.detach().cpu() - reference).abs().max().item<double>(), 1e-6) << k;
  }
}

TEST(GradScaler, EqualsTorchStepByStep) {
  for (const at::Device device : devices()) equals_torch(device, 1);
}

TEST(GradScaler, TakesAFlagThatRanksHaveAddedUp) {
  for (const at::Device device : devices()) equals_torch(device, 3);
}

TEST(GradScaler, UnscalesGradientsOfSeveralTypesAndClearsTheFlag) {
  GradScaler scaler({.init_scale = 8}, torch::kCPU);
  const torch::Tensor half = torch::full({3}, 16, torch::kHalf), full = torch::full({2}, 4.);
  scaler.unscale({half, full});
  EXPECT_EQ(half[0].item<double>(), 2);
  EXPECT_EQ(full[0].item<double>(), 0.5);
  EXPECT_EQ(scaler.found_inf().item<double>(), 0);
  half[1] = 1e30;
  scaler.unscale({half, full});
  EXPECT_EQ(scaler.found_inf().item<double>(), 1);
  scaler.unscale({full});
  EXPECT_EQ(scaler.found_inf().item<double>(), 0);
}

TEST(GradScaler, ContinuesFromItsState) {
  GradScaler before({}, torch::kCPU), after({}, torch::kCPU);
  before.found_inf().fill_(1);
  before.update();
  after.load_state(before.state());
  EXPECT_EQ(after.current().item<double>(), 32768);
  EXPECT_THROW(after.load_state({{"scale", torch::ones({})}}), cxxrun::Error);
  EXPECT_THROW(after.load_state({{"scale", torch::zeros({})}, {"growth_tracker", torch::zeros({}, torch::kInt)}}),
               cxxrun::Error);
  EXPECT_EQ(after.current().item<double>(), 32768);
}

}  // namespace
}  // namespace vla
