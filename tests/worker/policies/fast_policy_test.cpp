// speed.mode fast computes what the reference's operations compute.
#include <algorithm>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/registry.hpp"
#include "tests/worker/policies/golden.hpp"
#include "tests/worker/policies/support.hpp"
#include "worker/optim/precision.hpp"
#include "worker/policies/nn/fast_mode.hpp"

namespace vla {
namespace {

struct Case {
  std::string policy;
  std::map<std::string, double> options = {};
  std::string name;
};

class FastPolicy : public testing::TestWithParam<Case> {
 protected:
  FastPolicy() {
    apply_tf32({});
    // Attention on a GPU has its own dropout in fast mode.
    auto values = GetParam().options;
    if (test_device().is_cuda()) values["dropout"] = 0;
    torch::manual_seed(5);
    const PolicyEntry& entry = cxxrun::find_in_registry(policy_registry(), GetParam().policy, "policy.type");
    options_ = test_options(entry, values);
    {
      const FastModeScope fast(true);  // parameters may be stored for it
      policy_ = entry.make(*options_, features_);
    }
    for (auto& entry : policy_->named_buffers()) {
      if (entry.value().is_floating_point() && entry.key().find("bn") != std::string::npos) entry.value().uniform_(0.5, 1.5);
    }
  }

  struct Result {
    at::Tensor loss;
    std::map<std::string, at::Tensor> gradients, buffers;
  };
  Result compute(bool is_fast, at::ScalarType dtype) {
    policy_->to(test_device(), dtype);
    torch::manual_seed(8);
    Batch batch = on_device(random_batch(options_->sample_request(features_), features_, 4, dtype), test_device());
    batch.weight[3] = 0;  // pads the batch
    const auto buffers = policy_->named_buffers();
    std::map<std::string, at::Tensor> before;
    for (const auto& entry : buffers) before[entry.key()] = entry.value().clone();
    const FastModeScope fast(is_fast);
    policy_->train();
    policy_->zero_grad();
    Result result;
    result.loss = loss_of(*policy_, batch).loss;
    result.loss.backward();
    result.gradients = gradients_of(*policy_);
    for (const auto& entry : buffers) {
      result.buffers[entry.key()] = entry.value().clone();
      entry.value().copy_(before.at(entry.key()));
    }
    return result;
  }

  // `encoder_tolerance` is of the gradients of image encoders.
  void expect_same(at::ScalarType dtype, double tolerance, double encoder_tolerance) {
    const Result expected = compute(false, dtype), actual = compute(true, dtype);
    EXPECT_LE(relative_error(actual.loss, expected.loss), std::min(tolerance, kGoldenTolerance));
    ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
    const double largest = largest_value(expected.gradients);
    for (const auto& [name, gradient] : actual.gradients) {
      const bool is_encoder = name.find("backbone") != std::string::npos || name.starts_with("obs_encoder");
      EXPECT_LE((gradient - expected.gradients.at(name)).abs().max().item<double>(), (is_encoder ? encoder_tolerance : tolerance) * largest) << name;
    }
    for (const auto& [name, buffer] : actual.buffers) {
      EXPECT_LE(relative_error(buffer, expected.buffers.at(name)), buffer.is_floating_point() ? tolerance : 0) << name;
    }
  }

  PolicyFeatures features_ = test_features();
  std::unique_ptr<PolicyOptions> options_;
  std::shared_ptr<Policy> policy_;
};

// An encoder's relu near zero lets a gradient pass or not, and batch norms amplify rounding: 1e-3 was seen.
TEST_P(FastPolicy, GivesTheReferencesLossAndGradientsInFloat) { expect_same(at::kFloat, policy_->is_batch_coupled() ? 5e-3 : kGoldenTolerance, 5e-3); }

TEST_P(FastPolicy, GivesTheReferencesLossAndGradientsInDouble) { expect_same(at::kDouble, 1e-9, 1e-9); }

TEST_P(FastPolicy, RecomputesWhatItComputed) {
  const FastModeScope fast(true);
  const Result expected = compute(true, at::kDouble);
  policy_->set_activation_checkpointing(true);
  const Result actual = compute(true, at::kDouble);
  const double largest = largest_value(expected.gradients);
  for (const auto& [name, gradient] : actual.gradients) {
    EXPECT_LE((gradient - expected.gradients.at(name)).abs().max().item<double>(), 1e-12 * largest) << name;
  }
}

TEST_P(FastPolicy, GivesParametersGradientsOfTheirOwnStrides) {
  compute(true, at::kFloat);
  for (const auto& entry : policy_->named_parameters()) {
    if (!entry.value().grad().defined()) continue;
    for (int64_t i = 0; i < entry.value().dim(); ++i) {  // strides of dimensions of size 1 mean nothing
      if (entry.value().size(i) == 1) continue;
      EXPECT_EQ(entry.value().grad().stride(i), entry.value().stride(i)) << entry.key();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, FastPolicy,
                         testing::Values(Case{"act", {}, "Act"}, Case{"act", {{"pre_norm", 1}, {"dropout", 0}}, "ActPreNorm"},
                                         Case{"diffusion", {}, "Diffusion"}, Case{"diffusion", {{"use_film_scale_modulation", 0}}, "DiffusionShiftOnly"},
                                         Case{"diffusion_policy", {}, "OriginalDiffusion"}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace vla
