#include "worker/evaluation.hpp"

#include <gtest/gtest.h>

#include "tests/worker/inference/fake_policy.hpp"
#include "worker/training_data.hpp"

namespace vla {
namespace {

// Predicts what was demonstrated from the current frame on (samples begin one frame before it), but `shift` frames later, with `bias` added
// to the second dimension. Sees actions as they are, or normalized.
struct EchoPolicy : FakePolicy {
  EchoPolicy(int64_t shift, double bias) : FakePolicy(false), shift(shift), bias(bias) {}

  torch::Tensor loss_counts(const Batch&) const override { return torch::ones({1}, torch::kDouble); }
  PolicyLoss compute_loss(const Batch&, const torch::Tensor&, const StepRandom&) override { return {torch::zeros({}), {}}; }
  torch::Tensor sample_chunk(const Batch& batch, const StepRandom&) override {
    auto chunk = batch.at("action").slice(1, 1 + shift, 3 + shift).clone();
    chunk.select(2, 1) += bias;
    return chunk;
  }

  int64_t shift;
  double bias;
};

using Modes = std::map<data::FeatureType, NormalizationMode>;

Evaluation evaluate_echo(int64_t shift, double bias, int64_t batch_size = 4, const Modes& modes = {}) {
  const auto dataset = data::open_dataset({.root = "synthetic:frames=21,state=1,action=6,episodes=2,image=4x6", .episodes = {}});
  const auto policy = std::make_shared<EchoPolicy>(shift, bias);
  const cxxrun::World world(cxxrun::WorkerEnv{}, at::kCPU);
  cxxrun::DistributedDataParallel<Policy> ddp(policy, world.group());
  const data::Sampler in_order({.dataset_size = dataset->size(), .global_batch = batch_size, .shuffle = false});
  data::Loader loader(dataset, policy->options().sample_request(policy->features()),
                      [&](int64_t step) -> std::optional<data::MicroBatch> {
                        if (step >= in_order.steps_per_epoch()) return std::nullopt;
                        return in_order.micro_batch(step, 0, 1, 0, 1);
                      },
                      {.rows = batch_size, .num_threads = 1, .num_slots = 2, .allocate = {}});
  const auto mean = mean_action(dataset->stats(), at::kCPU, at::kFloat);
  return evaluate(ddp, Normalizer(modes, policy->features(), dataset->stats(), at::kCPU), mean, loader, in_order.steps_per_epoch(), world);
}

TEST(Evaluation, ComparesTheFirstPredictedActionWithThatOfTheCurrentFrame) {
  const Evaluation exact = evaluate_echo(0, 0);
  EXPECT_EQ(exact.frames, 21);
  EXPECT_EQ(exact.all.policy, 0);
  EXPECT_EQ(exact.all.policy_rmse, 0);
  EXPECT_GT(exact.all.mean_action, 0);
  EXPECT_GT(evaluate_echo(1, 0).all.policy, 0);
}

TEST(Evaluation, ComparesInTheDatasetsUnits) {
  const Evaluation exact = evaluate_echo(0, 0, 4, {{data::FeatureType::kAction, NormalizationMode::kMeanStd}}), plain = evaluate_echo(0, 0);
  EXPECT_LE(exact.all.policy, 1e-5);
  EXPECT_NEAR(exact.all.mean_action, plain.all.mean_action, 1e-9);
}

TEST(Evaluation, GivesTheErrorOfEachDimension) {
  const Evaluation biased = evaluate_echo(0, 0.5);
  ASSERT_EQ(biased.dimensions.size(), 6u);
  EXPECT_EQ(biased.dimensions[0].policy, 0);
  EXPECT_NEAR(biased.dimensions[1].policy, 0.5, 1e-6);
  EXPECT_NEAR(biased.dimensions[1].policy_rmse, 0.5, 1e-6);
  EXPECT_NEAR(biased.all.policy, 0.5 / 6, 1e-6);
  EXPECT_NEAR(biased.all.policy_rmse, 0.5 / std::sqrt(6.0), 1e-6);
  EXPECT_GE(biased.dimensions[3].mean_action_rmse, biased.dimensions[3].mean_action);
}

TEST(Evaluation, DoesNotDependOnTheBatchSize) {
  const Evaluation one = evaluate_echo(1, 0.25, 1), seven = evaluate_echo(1, 0.25, 7);
  EXPECT_NEAR(one.all.policy, seven.all.policy, 1e-12);
  EXPECT_NEAR(one.all.mean_action_rmse, seven.all.mean_action_rmse, 1e-12);
}

}  // namespace
}  // namespace vla
