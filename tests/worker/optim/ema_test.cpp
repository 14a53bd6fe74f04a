#include "worker/optim/ema.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/option_parse.hpp"
#include "worker/policies/nn/fast_mode.hpp"

namespace vla {
namespace {

using testing::ElementsAre;
using testing::Key;

// scripts/reference/make_ema_golden.py: a trained, a frozen and a batch norm's parameter.
struct AveragedModel : torch::nn::Module {
  torch::Tensor a = register_parameter("a", torch::empty({3, 4}));
  torch::Tensor b = register_parameter("b", torch::empty({5}), /*requires_grad=*/false);
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));

  AveragedModel() {
    norm->bias.set_requires_grad(false);
    set_weights(0);
  }
  void set_weights(int update) {
    const torch::NoGradGuard no_grad;
    double phase = 0;
    for (const torch::Tensor& tensor : {a, b, norm->weight}) {
      const torch::Tensor i = torch::arange(tensor.numel(), torch::kDouble);
      tensor.copy_(torch::sin(i * 0.7 + update + phase).to(torch::kFloat).reshape(tensor.sizes()));
      phase += 1;
    }
  }
  TensorMap state() const {
    return {
        {"a", a.detach()}, {"b", b}, {"norm.weight", norm->weight.detach()}, {"norm.running_mean", norm->running_mean}};
  }
};

EmaOptions parse(const nlohmann::json& values) {
  EmaOptions options;
  cxxrun::OptionTable table;
  options.describe(table);
  for (const auto& [name, value] : values.items()) {
    cxxrun::apply_setting(table,
                          {.name = name, .items = {value.is_string() ? value.get<std::string>() : value.dump()}});
  }
  return options;
}

void equals_diffusers_and_diffusion_policy() {
  for (const auto& row : nlohmann::json::parse(cxxrun::read_file(TEST_DATA_DIR "/optim/ema.json"))) {
    const EmaOptions options = parse(row["options"]);
    const auto model = std::make_shared<AveragedModel>();
    Ema ema(*model, options);
    for (int update = 1; update <= static_cast<int>(row["decays"].size()); ++update) {
      EXPECT_NEAR(ema_decay(options, update), row["decays"][update - 1].get<double>(), 1e-14)
          << row["options"] << update;
      model->set_weights(update);
      ema.update(update);
    }
    const TensorMap averaged = ema.averaged(model->state());
    for (const auto& [name, values] : row["averages"].items()) {
      const torch::Tensor expected = torch::tensor(values.get<std::vector<double>>(), torch::kDouble);
      EXPECT_LE((averaged.at(name).flatten() - expected).abs().max().item<double>(), 1e-7) << row["options"] << name;
    }
  }
}

TEST(Ema, EqualsDiffusersAndDiffusionPolicy) { equals_diffusers_and_diffusion_policy(); }

TEST(Ema, EqualsThemInOnePass) {
  const FastModeScope fast(true);
  equals_diffusers_and_diffusion_policy();
}

TEST(Ema, ReachesTheDecaysOfRdt) {
  const EmaOptions options{.type = "diffusion_policy"};
  const std::pair<int64_t, double> decays[] = {{0, 0},
                                               {1, 0},
                                               {2, 0.40539644},
                                               {5, 0.70093024},
                                               {1000, 0.99437659},
                                               {10000, 0.999},
                                               {215000, 0.99989985},
                                               {215471, 0.9999}};
  for (const auto& [counter, decay] : decays) EXPECT_NEAR(ema_decay(options, counter + 1), decay, 5e-9) << counter;
}

TEST(Ema, OwnsOnlyWhatIsAveraged) {
  const auto model = std::make_shared<AveragedModel>();
  EXPECT_THAT(Ema(*model, {}).shadow(), ElementsAre(Key("a"), Key("norm.weight")));
  EXPECT_THAT(Ema(*model, {.type = "diffusion_policy"}).shadow(), ElementsAre(Key("a")));
}

TEST(Ema, TheModelIsRestoredBitForBitAlsoAfterAnError) {
  for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kDouble}) {
    const auto model = std::make_shared<AveragedModel>();
    model->to(type);
    Ema ema(*model, {});
    model->set_weights(7);
    ema.update(4);
    const torch::Tensor own = model->a.detach().clone(), average = ema.shadow().at("a").clone();
    EXPECT_EQ(average.scalar_type(), type == torch::kDouble ? torch::kDouble : torch::kFloat);
    const void* memory = model->a.data_ptr();
    try {
      const Ema::Scope scope(ema);
      EXPECT_TRUE(torch::equal(model->a, average.to(type)));
      EXPECT_TRUE(torch::equal(ema.averaged(model->state()).at("a"), average.to(type)));
      EXPECT_ANY_THROW(ema.update(5));
      throw cxxrun::Error("the evaluation failed");
    } catch (const cxxrun::Error&) {
    }
    EXPECT_TRUE(torch::equal(model->a, own));
    EXPECT_EQ(model->a.data_ptr(), memory);
    EXPECT_TRUE(torch::equal(ema.shadow().at("a"), average));
  }
}

TEST(Ema, MovesBfloat16WeightsByLessThanTheirPrecision) {
  const auto model = std::make_shared<AveragedModel>();
  model->to(torch::kBFloat16);
  model->a.detach().fill_(1);
  Ema ema(*model, {});
  model->a.detach().fill_(1.5);
  ema.update(1'000'000);
  EXPECT_NEAR(ema.shadow().at("a")[0][0].item<double>(), 1.00005, 1e-7);
}

TEST(Ema, ContinuesFromItsShadow) {
  const auto model = std::make_shared<AveragedModel>();
  Ema straight(*model, {}), before(*model, {});
  for (int update = 1; update <= 5; ++update) {
    model->set_weights(update);
    straight.update(update);
    before.update(update);
  }
  Ema after(*model, {});
  after.load(before.shadow());
  model->set_weights(6);
  straight.update(6);
  after.update(6);
  EXPECT_TRUE(torch::equal(straight.shadow().at("a"), after.shadow().at("a")));
  EXPECT_THROW(after.load({{"a", torch::zeros({3, 4})}}), cxxrun::Error);
  after.restart();
  EXPECT_TRUE(torch::equal(after.shadow().at("a"), model->a));
}

}  // namespace
}  // namespace vla
