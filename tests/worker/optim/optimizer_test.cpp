#include "worker/optim/optimizer.hpp"

#include <cmath>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>
#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "worker/policies/nn/fast_mode.hpp"

namespace vla {
namespace {

using testing::HasSubstr;

// scripts/reference/make_optimizer_golden.py
torch::Tensor values(at::IntArrayRef shape, double phase) {
  return torch::sin(torch::arange(c10::multiply_integers(shape), torch::kDouble) * 0.7 + phase).reshape(shape);
}

struct Model {
  torch::TensorOptions options = torch::kDouble;
  std::vector<std::pair<std::string, torch::Tensor>> parameters = {
      {"a", values({3, 4}, 0).to(options).requires_grad_()},
      {"b", values({5}, 1).to(options).requires_grad_()},
      {"c", values({2, 3, 2}, 2).to(options).requires_grad_()}};

  std::vector<ParameterGroup> groups() const {
    return {{"main", 0, {parameters[0], parameters[1]}}, {"slow", 0.02, {parameters[2]}}};
  }
  void set_gradients(int step) const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const torch::Tensor& p = parameters[i].second;
      const torch::Tensor grad = values(p.sizes(), 10. * step + 3. * static_cast<double>(i)).to(options) * 2;
      if (p.grad().defined()) {
        p.mutable_grad().copy_(grad);
      } else {
        p.mutable_grad() = grad;
      }
    }
  }
};

OptimizerOptions options_of(const std::string& type, double clip) {
  return {
      .type = type, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.03, .grad_clip_norm = clip};
}

// One optimizer step; returns the gradient's norm.
double train(const Model& model, Optimizer& optimizer, int step) {
  model.set_gradients(step);
  const double norm = optimizer.clip_grad_norm().item<double>();
  optimizer.set_lr_factor(1 - 0.2 * step);
  optimizer.step();
  return norm;
}

void expect_near(const torch::Tensor& tensor, const nlohmann::json& expected, const std::string& what) {
  const torch::Tensor reference = torch::tensor(expected.get<std::vector<double>>(), torch::kDouble);
  EXPECT_LE((tensor.detach().flatten() - reference).abs().max().item<double>(), 1e-12) << what;
}

TEST(Optimizer, EqualsPyTorchOverFourClippedSteps) {
  const auto golden = nlohmann::json::parse(cxxrun::read_file(TEST_DATA_DIR "/optim/optimizer.json"));
  for (const auto& [type, clip] : {std::pair("adamw", 3.0), std::pair("adam", 100.0)}) {
    const Model model;
    Optimizer optimizer(model.groups(), options_of(type, clip));
    for (int step = 0; step < 4; ++step)
      EXPECT_NEAR(train(model, optimizer, step), golden[type]["norms"][step].get<double>(), 1e-12);
    const auto state = optimizer.state();
    for (const auto& [name, parameter] : model.parameters) {
      expect_near(parameter, golden[type]["parameters"][name], type + (" " + name));
      expect_near(state.at(name + ".exp_avg_sq"), golden[type]["exp_avg_sq"][name], type + (" exp_avg_sq of " + name));
      EXPECT_EQ(state.at(name + ".step").item<float>(), 4);
    }
  }
}

TEST(Optimizer, ContinuesFromSavedStateExactly) {
  const Model straight, resumed;
  Optimizer first(straight.groups(), options_of("adamw", 3)), before(resumed.groups(), options_of("adamw", 3));
  for (int step = 0; step < 2; ++step) {
    train(straight, first, step);
    train(resumed, before, step);
  }
  Optimizer after(resumed.groups(), options_of("adamw", 3));
  after.load_state(before.state());
  for (int step = 2; step < 4; ++step) {
    train(straight, first, step);
    train(resumed, after, step);
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(straight.parameters[i].second, resumed.parameters[i].second));
}

TEST(Optimizer, ZeroGradKeepsTheGradientsMemory) {
  const Model model;
  Optimizer optimizer(model.groups(), options_of("adamw", 0));
  model.set_gradients(0);
  const void* memory = model.parameters[0].second.grad().data_ptr();
  optimizer.zero_grad();
  EXPECT_EQ(model.parameters[0].second.grad().data_ptr(), memory);
  EXPECT_EQ(model.parameters[0].second.grad().abs().sum().item<double>(), 0);
}

TEST(Optimizer, LeavesParametersWithoutGradientAlone) {
  const Model model;
  Optimizer optimizer(model.groups(), options_of("adamw", 1));
  EXPECT_EQ(optimizer.clip_grad_norm().item<double>(), 0);
  model.set_gradients(0);
  model.parameters[1].second.mutable_grad().reset();
  const torch::Tensor before = model.parameters[1].second.detach().clone();
  optimizer.step();
  EXPECT_TRUE(torch::equal(model.parameters[1].second, before));
  EXPECT_EQ(optimizer.state().at("b.step").item<float>(), 0);
}

TEST(Optimizer, MayMixDtypesInAGroup) {
  for (const bool master_weights : {false, true}) {
    const torch::Tensor half = torch::ones({4}, torch::kBFloat16).requires_grad_(),
                        full = torch::ones({4}).requires_grad_();
    OptimizerOptions options = options_of("adamw", 1);
    options.master_weights = master_weights;
    Optimizer optimizer({{"all", 0, {{"half", half}, {"full", full}}}}, options);
    half.mutable_grad() = torch::ones_like(half);
    full.mutable_grad() = torch::ones_like(full);
    EXPECT_NEAR(optimizer.clip_grad_norm().item<double>(), std::sqrt(8), 1e-6);
    optimizer.step();
    EXPECT_LT(full[0].item<float>(), 1);
    EXPECT_LT(half[0].item<float>(), 1);
    EXPECT_EQ(optimizer.state().at("half.exp_avg").scalar_type(), master_weights ? torch::kFloat : torch::kBFloat16);
    EXPECT_EQ(optimizer.state().contains("half.master"), master_weights);
    EXPECT_FALSE(optimizer.state().contains("full.master"));
  }
}

TEST(Optimizer, TakesTheNormOfLargeHalfPrecisionGradients) {
  const torch::Tensor half = torch::ones({100}, torch::kHalf).requires_grad_();
  Optimizer optimizer({{"all", 0, {{"half", half}}}}, options_of("adamw", 1));
  half.mutable_grad() = torch::full_like(half, 20000);
  EXPECT_NEAR(optimizer.clip_grad_norm().item<double>(), 200000, 0.1);
  EXPECT_NEAR(half.grad()[0].item<double>(), 0.1, 1e-4);
}

// Where 200 steps of 0.001 from 1 towards 0.9 end.
double minimum_of_quadratic(at::ScalarType type, bool master_weights) {
  const torch::Tensor x = torch::ones({8}, type).requires_grad_();
  OptimizerOptions options{.lr = 1e-3, .grad_clip_norm = 0, .master_weights = master_weights};
  Optimizer optimizer({{"all", 0, {{"x", x}}}}, options);
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    (x - 0.9).square().sum().backward();
    optimizer.step();
  }
  return x[0].item<double>();
}

TEST(Optimizer, MasterWeightsMakeBfloat16ConvergeLikeFloat32) {
  const double full = minimum_of_quadratic(torch::kFloat, true);
  EXPECT_NEAR(full, 0.9, 5e-3);
  EXPECT_NEAR(minimum_of_quadratic(torch::kBFloat16, true), full, 5e-3);
  EXPECT_EQ(minimum_of_quadratic(torch::kBFloat16, false), 1);  // 0.001 is less than half a step of bfloat16 there
}

TEST(Optimizer, StateWithAndWithoutMasterWeightsContinuesInTheOther) {
  const Model half{torch::kBFloat16}, full{torch::kFloat}, again{torch::kBFloat16};
  Optimizer with(half.groups(), options_of("adamw", 3)), without(full.groups(), options_of("adamw", 3));
  train(half, with, 0);
  without.load_state(with.state());
  const auto state = with.state();
  for (const auto& [name, parameter] : full.parameters)
    EXPECT_TRUE(torch::equal(parameter, state.at(name + ".master")));
  Optimizer back(again.groups(), options_of("adamw", 3));
  {
    const torch::NoGradGuard no_grad;
    again.parameters[0].second.fill_(3);  // as loading weights does
  }
  back.load_state(without.state());
  EXPECT_EQ(back.state().at("a.master")[0][0].item<double>(), 3);
  EXPECT_EQ(back.state().at("a.step").item<double>(), 1);
}

TEST(Optimizer, ASkippedStepChangesNothingBitForBit) {
  const std::pair<at::Device, at::ScalarType> kinds[] = {{torch::kCPU, torch::kFloat},
                                                         {torch::kCPU, torch::kBFloat16},
                                                         {{torch::kCUDA, 0}, torch::kFloat},
                                                         {{torch::kCUDA, 0}, torch::kBFloat16}};
  for (const auto& [device, type] : kinds) {
    if (device.is_cuda() && !torch::cuda::is_available()) continue;
    for (const auto& [by_norm, is_fast] : {std::pair(true, false), {false, false}, {true, true}, {false, true}}) {
      const FastModeScope fast(is_fast);
      const Model model{torch::device(device).dtype(type)};
      Optimizer optimizer(model.groups(), options_of("adamw", 3));
      train(model, optimizer, 0);
      TensorMap before;
      for (const auto& [name, tensor] : optimizer.state()) before[name] = tensor.clone();
      for (const auto& [name, parameter] : model.parameters) before[name] = parameter.detach().clone();

      const auto step = [&](int number, double poison) {
        model.set_gradients(number);
        model.parameters[1].second.mutable_grad().view(-1)[2] += poison;
        if (by_norm) optimizer.clip_grad_norm();
        optimizer.step(by_norm ? torch::Tensor()
                               : torch::full({}, poison != 0, torch::device(device).dtype(torch::kFloat)));
      };
      step(1, NAN);
      step(2, INFINITY);
      for (const auto& [name, tensor] : optimizer.state()) EXPECT_TRUE(torch::equal(tensor, before.at(name))) << name;
      for (const auto& [name, parameter] : model.parameters)
        EXPECT_TRUE(torch::equal(parameter, before.at(name))) << name;
      EXPECT_EQ(optimizer.skipped_steps().item<double>(), 2);

      step(3, 0);
      EXPECT_EQ(optimizer.state().at("b.step").item<double>(), 2);
      EXPECT_FALSE(torch::equal(model.parameters[1].second, before.at("b")));
      EXPECT_TRUE(model.parameters[1].second.isfinite().all().item<bool>());
      EXPECT_EQ(optimizer.skipped_steps().item<double>(), 2);
    }
  }
}

TEST(Optimizer, OnCudaEqualsTheCpuAlsoWhenReplayedFromAGraphWithNewRates) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());
  const Model cpu{torch::kFloat}, eager{torch::device(torch::kCUDA).dtype(torch::kFloat)}, replayed{eager.options};
  Optimizer on_cpu(cpu.groups(), options_of("adamw", 3)), on_cuda(eager.groups(), options_of("adamw", 3)),
      in_graph(replayed.groups(), options_of("adamw", 3));
  at::cuda::CUDAGraph graph;
  for (int step = 0; step < 4; ++step) {
    const double norm = train(cpu, on_cpu, step);
    EXPECT_NEAR(train(eager, on_cuda, step), norm, 1e-5 * norm);
    replayed.set_gradients(step);
    in_graph.set_lr_factor(1 - 0.2 * step);
    if (step == 1) graph.capture_begin();
    if (step <= 1) {
      in_graph.clip_grad_norm();
      in_graph.step();
    }
    if (step == 1) graph.capture_end();
    if (step >= 1) graph.replay();
  }
  for (size_t i = 0; i < 3; ++i) {
    const torch::Tensor& expected = cpu.parameters[i].second;
    EXPECT_LE((eager.parameters[i].second.cpu() - expected).abs().max().item<double>(), 1e-6)
        << cpu.parameters[i].first;
    EXPECT_TRUE(torch::equal(replayed.parameters[i].second, eager.parameters[i].second)) << cpu.parameters[i].first;
  }
}

TEST(Optimizer, AGraphLeavesOutUpdatesByWhatTheGradientsAreWhenItIsReplayed) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    const Model model{torch::device(torch::kCUDA).dtype(type)};
    Optimizer optimizer(model.groups(), options_of("adamw", 3));
    train(model, optimizer, 0);
    at::cuda::CUDAGraph graph;
    model.set_gradients(1);
    graph.capture_begin();
    optimizer.clip_grad_norm();
    optimizer.step();
    graph.capture_end();
    const torch::Tensor& parameter = model.parameters[0].second;
    for (const bool is_bad : {true, false, true}) {
      model.set_gradients(1);
      if (is_bad) model.parameters[2].second.mutable_grad().fill_(NAN);
      const torch::Tensor before = parameter.detach().clone();
      graph.replay();
      EXPECT_EQ(torch::equal(parameter, before), is_bad);
    }
    EXPECT_EQ(optimizer.skipped_steps().item<double>(), 2);
    EXPECT_EQ(optimizer.state().at("a.step").item<double>(), 2);
  }
}

TEST(Optimizer, StateThatDoesNotFitIsOneErrorNamingEveryTensor) {
  const Model model;
  Optimizer optimizer(model.groups(), options_of("adamw", 1));
  auto state = optimizer.state();
  state.erase("a.step");
  state["b.exp_avg"] = torch::zeros({6});
  state["d.exp_avg"] = torch::zeros({1});
  try {
    optimizer.load_state(state);
    FAIL();
  } catch (const cxxrun::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("a.step is missing"));
    EXPECT_THAT(e.what(), HasSubstr("b.exp_avg has shape [6], not [5]"));
    EXPECT_THAT(e.what(), HasSubstr("d.exp_avg is unknown"));
  }
}

}  // namespace
}  // namespace vla
