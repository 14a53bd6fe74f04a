// What every registered policy promises, whatever it is.
#include <cmath>
#include <set>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/support.hpp"
#include "worker/optim/optimizer.hpp"

namespace vla {
namespace {

class PolicyContract : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<Policy> make(const std::map<std::string, double>& values = {}) {
    torch::manual_seed(5);
    const PolicyEntry* entry = nullptr;
    for (const PolicyEntry& row : policy_registry()) {
      if (GetParam() == row.name) entry = &row;
    }
    options_ = test_options(*entry, values);
    options_->validate(features_);
    return entry->make(*options_, features_);
  }

  Batch batch(int64_t rows = 4, at::ScalarType dtype = at::kFloat) { return random_batch(options_->sample_request(features_), features_, rows, dtype); }

  PolicyFeatures features_ = test_features();
  std::unique_ptr<PolicyOptions> options_;
};

TEST_P(PolicyContract, AsksForItsFeaturesAndTheChunkOfActions) {
  make();
  bool action = false;
  for (const auto& field : options_->sample_request(features_)) {
    if (field.key == "action") {
      action = true;
      ASSERT_FALSE(field.deltas.empty());
      EXPECT_LE(field.deltas.front(), 0);
      for (size_t i = 1; i < field.deltas.size(); ++i) EXPECT_EQ(field.deltas[i], field.deltas[i - 1] + 1);
    }
  }
  EXPECT_TRUE(action);
}

TEST_P(PolicyContract, LossIsFiniteAndReachesEveryTrainableParameter) {
  const auto policy = make();
  policy->train();
  const PolicyLoss loss = loss_of(*policy, batch());
  EXPECT_TRUE(std::isfinite(loss.loss.item<double>()));
  for (const auto& [name, value] : loss.metrics) {
    EXPECT_TRUE(std::isfinite(value.item<double>())) << name;
    EXPECT_FALSE(value.requires_grad()) << name;
  }
  loss.loss.backward();
  for (const auto& entry : policy->named_parameters()) {
    ASSERT_EQ(entry.value().grad().defined(), entry.value().requires_grad()) << entry.key();
    if (!entry.value().requires_grad()) continue;
    EXPECT_TRUE(entry.value().grad().isfinite().all().item<bool>()) << entry.key();
  }
}

TEST_P(PolicyContract, GroupsHoldEveryTrainableParameterOnce) {
  const auto policy = make();
  std::set<std::string> expected, grouped;
  for (const auto& entry : policy->named_parameters()) {
    if (entry.value().requires_grad()) expected.insert(entry.key());
  }
  for (const auto& group : policy->parameter_groups()) {
    for (const auto& [name, parameter] : group.parameters) EXPECT_TRUE(grouped.insert(name).second) << name;
  }
  EXPECT_EQ(grouped, expected);
}

TEST_P(PolicyContract, RowsOfWeightZeroChangeNothing) {
  const auto policy = make();
  policy->train();
  policy->to(at::kDouble);
  const Batch batch = this->batch(4, at::kDouble);
  Batch padded = take_rows(batch, 0, batch.rows(), 3);
  EXPECT_TRUE(policy->loss_counts(padded).equal(policy->loss_counts(batch)));
  const PolicyLoss expected = loss_of(*policy, batch), actual = loss_of(*policy, padded);
  EXPECT_NEAR(actual.loss.item<double>(), expected.loss.item<double>(), 1e-12);
  for (size_t i = 0; i < expected.metrics.size(); ++i) {
    EXPECT_NEAR(actual.metrics[i].second.item<double>(), expected.metrics[i].second.item<double>(), 1e-12) << expected.metrics[i].first;
  }
}

// Loss and gradients of a global batch are the sums over its micro-batches, dropout and noise included.
TEST_P(PolicyContract, MicroBatchesAddUpToTheWholeBatch) {
  const auto policy = make();
  if (policy->is_batch_coupled()) GTEST_SKIP() << "a row's loss depends on the other rows";
  policy->train();
  policy->to(at::kDouble);
  const Batch batch = this->batch(5, at::kDouble);
  const at::Tensor counts = policy->loss_counts(batch);
  const PolicyLoss whole = loss_of(*policy, batch);
  whole.loss.backward();
  std::map<std::string, at::Tensor> expected;
  for (const auto& entry : policy->named_parameters()) {
    if (entry.value().requires_grad()) expected[entry.key()] = entry.value().grad().clone();
  }
  policy->zero_grad();

  const Batch parts[] = {take_rows(batch, 0, 2, 1), take_rows(batch, 2, 5), take_rows(batch, 0, 0, 3)};
  at::Tensor loss = torch::zeros({}, at::kDouble), summed = torch::zeros_like(counts);
  for (const Batch& part : parts) {
    summed += policy->loss_counts(part);
    const at::Tensor part_loss = policy->compute_loss(part, counts, StepRandom(1000, part.step, part.position)).loss;
    part_loss.backward();
    loss += part_loss.detach();
  }
  EXPECT_TRUE(summed.equal(counts));
  EXPECT_LE(relative_error(loss, whole.loss), 1e-12);
  double largest = 0;
  for (const auto& [name, gradient] : expected) largest = std::max(largest, gradient.abs().max().item<double>());
  for (const auto& [name, gradient] : expected) {
    const double difference = (policy->named_parameters()[name].grad() - gradient).abs().max().item<double>();
    EXPECT_LE(difference, 1e-12 * largest) << name;
  }
}

TEST_P(PolicyContract, PredictsTheSameChunkEveryTime) {
  const auto policy = make();
  const Batch batch = this->batch();
  const at::Tensor first = policy->predict_chunk(batch);
  ASSERT_EQ(first.dim(), 3);
  EXPECT_EQ(first.size(0), 4);
  EXPECT_EQ(first.size(1), 6);
  EXPECT_EQ(first.size(2), 3);
  EXPECT_FALSE(first.requires_grad());
  EXPECT_TRUE(policy->predict_chunk(batch).equal(first));
}

TEST_P(PolicyContract, LearnsOneBatchByHeart) {
  const auto policy = make({{"dropout", 0}, {"kl_weight", 0.01}});
  policy->train();
  const Batch batch = this->batch(2);
  OptimizerOptions options = options_->optimizer_preset();
  options.lr = GetParam() == "linear" ? 3e-2 : 1e-3;
  Optimizer optimizer(policy->parameter_groups(), options);
  const double before = loss_of(*policy, batch).loss.item<double>();
  for (int step = 0; step < 60; ++step) {
    policy->zero_grad();
    loss_of(*policy, batch).loss.backward();
    optimizer.step();
  }
  EXPECT_LT(loss_of(*policy, batch).loss.item<double>(), 0.5 * before);
}

INSTANTIATE_TEST_SUITE_P(Registry, PolicyContract, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const PolicyEntry& entry : policy_registry()) names.emplace_back(entry.name);
                           return names;
                         }()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace vla
