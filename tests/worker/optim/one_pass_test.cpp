// Fast mode's optimizer and averages against LibTorch's kernels one after another, on the CPU and, where there is one, a GPU.
#include <cmath>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/optim/ema.hpp"
#include "worker/optim/optimizer.hpp"
#include "worker/policies/nn/fast_mode.hpp"

namespace vla::one_pass {
namespace {

constexpr double kTolerance = 1e-6;  // of what a step changes, in float32

std::vector<at::Device> devices() {
  std::vector<at::Device> devices = {torch::kCPU};
  if (torch::cuda::is_available()) devices.emplace_back(torch::kCUDA, 0);
  return devices;
}

// More than a chunk, fewer than four, not a multiple of four, a scalar, channels last and, of `idle`, no gradient.
struct Model : torch::nn::Module {
  explicit Model(at::TensorOptions options) {
    torch::manual_seed(7);
    const auto make = [&](const char* name, at::IntArrayRef shape, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
      register_parameter(name, torch::randn(shape).to(torch::kBFloat16).to(options).contiguous(format));
    };
    make("long", {3, 5461});
    make("short", {3});
    make("odd", {41});
    make("scalar", {});
    make("filter", {8, 4, 3, 3}, at::MemoryFormat::ChannelsLast);
    make("idle", {10});
  }

  std::vector<ParameterGroup> groups() const {
    ParameterGroup main{"main", 0, {}}, slow{"slow", 0.02, {}};
    for (const auto& parameter : named_parameters()) {
      (parameter.key() == "odd" ? slow : main).parameters.emplace_back(parameter.key(), parameter.value());
    }
    return {main, slow};
  }

  // As views of one bucket, in which few of them are aligned. Representable in bfloat16.
  void set_gradients(int step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    if (!bucket_.defined()) bucket_ = torch::zeros({20'000}, parameters().front().options().requires_grad(false));
    int64_t at = 1;
    for (const auto& parameter : named_parameters()) {
      if (parameter.key() == "idle") continue;
      torch::Tensor p = parameter.value();
      if (!p.grad().defined()) p.mutable_grad() = bucket_.slice(0, at, at + p.numel()).as_strided(p.sizes(), p.strides(), at);
      at += p.numel();
      p.mutable_grad().copy_(torch::randn(p.sizes()).to(torch::kBFloat16));
    }
  }

 private:
  torch::Tensor bucket_;
};

OptimizerOptions options_of(const std::string& type, double clip) {
  return {.type = type, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.03, .grad_clip_norm = clip};
}

double train(Model& model, Optimizer& optimizer, int step) {
  model.set_gradients(step);
  optimizer.set_lr_factor(1 - 0.2 * step);
  const double norm = optimizer.clip_grad_norm().item<double>();
  optimizer.step();
  return norm;
}

void expect_near(const TensorMap& tensors, const TensorMap& expected, double tolerance) {
  ASSERT_EQ(tensors.size(), expected.size());
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor difference = (tensor.to(torch::kCPU, torch::kFloat) - expected.at(name).to(torch::kCPU, torch::kFloat)).abs();
    EXPECT_LE(difference.max().item<double>(), tolerance) << name;
  }
}

TensorMap parameters_of(const Model& model) {
  TensorMap parameters;
  for (const auto& parameter : model.named_parameters()) parameters[parameter.key()] = parameter.value().detach();
  return parameters;
}

// With float32 parameters of the same values: the reference rounds what clipping makes of bfloat16 gradients to bfloat16 once more.
void equals_the_kernels(at::Device device, at::ScalarType type, const std::string& rule, double clip) {
  Model model(torch::device(device).dtype(type)), reference(torch::kFloat);
  Optimizer wide(reference.groups(), options_of(rule, clip));
  const FastModeScope fast(true);
  Optimizer optimizer(model.groups(), options_of(rule, clip));
  for (int step = 0; step < 4; ++step) {
    const double norm = train(reference, wide, step);
    EXPECT_NEAR(train(model, optimizer, step), norm, 1e-5 * norm);  // the CPU's kernel adds up in float32
  }
  TensorMap state = optimizer.state(), expected = wide.state();
  for (const auto& [name, parameter] : parameters_of(reference)) {
    if (type == torch::kFloat) state[name + ".master"] = parameters_of(model).at(name);
    expected[name + ".master"] = parameter;
    EXPECT_TRUE(torch::equal(parameters_of(model).at(name), state.at(name + ".master").to(type))) << name;
  }
  // Norms differ in their sixth digit, and where decay and clipped gradient nearly cancel, Adam enlarges that.
  expect_near(state, expected, clip == 3 ? 10 * kTolerance : kTolerance);
  EXPECT_EQ(state.at("long.step").item<double>(), 4);
  EXPECT_EQ(state.at("idle.step").item<double>(), 0);
}

TEST(OnePass, EqualsTheKernelsOneAfterAnother) {
  for (const at::Device device : devices()) {
    for (const auto type : {torch::kFloat, torch::kBFloat16}) {
      for (const auto& [rule, clip] : {std::pair("adamw", 3.0), std::pair("adam", 3.0), std::pair("adam", 1e9), std::pair("adamw", 1e9), std::pair("adamw", 0.0)}) {
        SCOPED_TRACE(testing::Message() << device << ' ' << type << ' ' << rule << ' ' << clip);
        equals_the_kernels(device, type, rule, clip);
      }
    }
  }
}

// Without masters the moments are bfloat16, too: a last bit may be rounded the other way.
TEST(OnePass, EqualsTheKernelsWithoutMasters) {
  constexpr double kLastBit = 1.0 / 128;  // of 1, too: sums of numbers near it may cancel
  for (const at::Device device : devices()) {
    SCOPED_TRACE(testing::Message() << device);
    OptimizerOptions options = options_of("adamw", 0);
    options.master_weights = false;
    Model model(torch::device(device).dtype(torch::kBFloat16)), reference(torch::device(device).dtype(torch::kBFloat16));
    Optimizer kernels(reference.groups(), options);
    const FastModeScope fast(true);
    Optimizer optimizer(model.groups(), options);
    for (int step = 0; step < 4; ++step) EXPECT_NEAR(train(model, optimizer, step), train(reference, kernels, step), 1e-3);
    TensorMap values = optimizer.state(), expected = kernels.state();
    values.merge(parameters_of(model));
    expected.merge(parameters_of(reference));
    for (const auto& [name, tensor] : values) {
      const torch::Tensor value = tensor.to(torch::kFloat), other = expected.at(name).to(torch::kFloat);
      EXPECT_TRUE(torch::allclose(value, other, kLastBit, kLastBit)) << name;
      EXPECT_GE(value.eq(other).to(torch::kFloat).mean().item<double>(), 0.9) << name;
    }
    EXPECT_EQ(values.at("long.exp_avg").scalar_type(), torch::kBFloat16);
    EXPECT_EQ(values.at("long.step").item<double>(), 4);
  }
}

TEST(OnePass, StepsWithoutClippingTakeTheGradientsAsTheyAre) {
  Model model(torch::kFloat), reference(torch::kFloat);
  Optimizer expected(reference.groups(), options_of("adamw", 0.01));
  const FastModeScope fast(true);
  Optimizer optimizer(model.groups(), options_of("adamw", 0.01));
  for (const auto& [m, o] : {std::pair(&model, &optimizer), std::pair(&reference, &expected)}) {
    train(*m, *o, 0);
    m->set_gradients(1);
    o->step();
  }
  expect_near(parameters_of(model), parameters_of(reference), kTolerance);
}

TEST(OnePass, ClearsGradientsAndAveragesInTheSamePassAlsoWhereTheUpdateIsLeftOut) {
  for (const at::Device device : devices()) {
    for (const auto type : {torch::kFloat, torch::kBFloat16}) {
      const auto shared = std::make_shared<Model>(torch::device(device).dtype(type)), shared_reference = std::make_shared<Model>(torch::dtype(type));
      Model &model = *shared, &reference = *shared_reference;
      const EmaOptions ema_options{.enable = true, .update_after_step = 1};  // the first updates copy
      Optimizer expected(reference.groups(), options_of("adamw", 1e9));
      Ema expected_averages(reference, ema_options);
      const FastModeScope fast(true);
      Optimizer optimizer(model.groups(), options_of("adamw", 1e9));
      Ema averages(model, ema_options);
      expected.set_after_update({.zero_grad = true, .average = &expected_averages});
      optimizer.set_after_update({.zero_grad = true, .average = &averages});
      for (int step = 0; step < 5; ++step) {
        for (const auto& [m, o, a] : {std::tuple(&model, &optimizer, &averages), std::tuple(&reference, &expected, &expected_averages)}) {
          m->set_gradients(step);
          {
            const torch::NoGradGuard no_grad;
            m->named_parameters()["idle"].add_(1);
          }
          if (step == 3) m->named_parameters()["odd"].mutable_grad()[7] = NAN;
          a->set_decay_for(step + 1);
          o->clip_grad_norm();
          o->step();
          for (const torch::Tensor& gradient : o->gradients()) EXPECT_EQ(gradient.abs().max().item<double>(), 0);
        }
        SCOPED_TRACE(testing::Message() << device << ' ' << type << " step " << step);
        expect_near(averages.shadow(), expected_averages.shadow(), type == torch::kFloat ? kTolerance : 2e-2);
      }
      EXPECT_EQ(optimizer.skipped_steps().item<double>(), 1);
      EXPECT_EQ(optimizer.state().at("long.step").item<double>(), 4);
    }
  }
}

TEST(OnePass, AGraphSeesLaterRatesDecaysAndGradients) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());
  const FastModeScope fast(true);
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    const auto options = torch::device(torch::kCUDA).dtype(type);
    const auto shared_eager = std::make_shared<Model>(options), shared_replayed = std::make_shared<Model>(options);
    Model &eager = *shared_eager, &replayed = *shared_replayed;
    Optimizer of_eager(eager.groups(), options_of("adamw", 3)), of_replayed(replayed.groups(), options_of("adamw", 3));
    Ema eager_averages(eager, {}), replayed_averages(replayed, {});
    of_eager.set_after_update({.zero_grad = true, .average = &eager_averages});
    of_replayed.set_after_update({.zero_grad = true, .average = &replayed_averages});
    at::cuda::CUDAGraph graph;
    for (int step = 0; step < 5; ++step) {
      eager_averages.set_decay_for(step + 1);
      train(eager, of_eager, step);
      replayed.set_gradients(step);
      replayed_averages.set_decay_for(step + 1);
      of_replayed.set_lr_factor(1 - 0.2 * step);
      if (step == 1) graph.capture_begin();
      if (step <= 1) {
        of_replayed.clip_grad_norm();
        of_replayed.step();
      }
      if (step == 1) graph.capture_end();
      if (step >= 1) graph.replay();
    }
    expect_near(parameters_of(replayed), parameters_of(eager), 0);
    expect_near(replayed_averages.shadow(), eager_averages.shadow(), 0);
  }
}

TEST(OnePass, AGraphUpdatesFromGradientsThatItsCaptureMoved) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());
  const FastModeScope fast(true);
  const auto options = torch::device(torch::kCUDA).dtype(torch::kFloat);
  Model eager(options), replayed(options);
  Optimizer of_eager(eager.groups(), options_of("adamw", 3)), of_replayed(replayed.groups(), options_of("adamw", 3));
  for (int step = 0; step < 2; ++step) train(eager, of_eager, step);
  train(replayed, of_replayed, 0);
  torch::Tensor moved = replayed.named_parameters()["odd"];
  moved.mutable_grad() = moved.grad().clone();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  of_replayed.clip_grad_norm();
  of_replayed.step();
  graph.capture_end();
  replayed.set_gradients(1);
  of_replayed.set_lr_factor(1 - 0.2);
  graph.replay();
  expect_near(parameters_of(replayed), parameters_of(eager), 0);
}

TEST(Optimizer, MastersBeginWithTheUnroundedParameters) {
  for (const bool is_fast : {false, true}) {
    const FastModeScope fast(is_fast);
    const torch::Tensor exact = torch::full({8}, 1.001), half = exact.to(torch::kBFloat16).requires_grad_();
    Optimizer optimizer({{"all", 0, {{"half", half}}}}, options_of("adamw", 0), {{"half", exact}, {"other", exact}});
    EXPECT_TRUE(torch::equal(optimizer.state().at("half.master"), exact));
    EXPECT_NE(optimizer.state().at("half.master").const_data_ptr(), exact.const_data_ptr());
    half.mutable_grad() = torch::zeros_like(half);
    optimizer.step();
    EXPECT_NEAR(optimizer.state().at("half.master")[0].item<double>(), 1.001 * (1 - 0.1 * 0.03), 1e-6);
    EXPECT_THROW(Optimizer({{"all", 0, {{"half", half}}}}, options_of("adamw", 0), {{"half", torch::ones({9})}}), c10::Error);
  }
}

}  // namespace
}  // namespace vla::one_pass
