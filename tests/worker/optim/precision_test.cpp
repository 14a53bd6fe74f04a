#include "worker/optim/precision.hpp"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "tests/support/message_of.hpp"
#include "tests/worker/policies/support.hpp"

namespace vla {
namespace {

using testing::HasSubstr;

struct Gradients {
  double loss;
  torch::Tensor flat;
};

Gradients of_linear_policy(const std::string& precision_name) {
  torch::manual_seed(1);
  const Precision precision = make_precision(precision_name, torch::kFloat, torch::kCPU);
  const auto& entry = cxxrun::find_in_registry(policy_registry(), "linear", "policy.type");
  const auto options = test_options(entry);
  const PolicyFeatures features = test_features();
  const auto policy = entry.make(*options, features);
  const Batch batch = random_batch(features, {});
  PolicyLoss loss;
  {
    const AutocastGuard autocast(precision, torch::kCPU);
    loss = loss_of(*policy, batch);
  }
  loss.loss.backward();
  std::vector<torch::Tensor> grads;
  for (const torch::Tensor& parameter : policy->parameters()) grads.push_back(parameter.grad().flatten());
  return {loss.loss.item<double>(), torch::cat(grads)};
}

TEST(Precision, Bf16MixedIsCloseToFp32ButNotTheSame) {
  const Gradients full = of_linear_policy("fp32"), mixed = of_linear_policy("bf16");
  EXPECT_NEAR(mixed.loss, full.loss, 2e-2 * full.loss);
  EXPECT_NE(mixed.loss, full.loss);
  EXPECT_EQ(mixed.flat.scalar_type(), torch::kFloat);
  EXPECT_LE((mixed.flat - full.flat).norm().item<double>(), 2e-2 * full.flat.norm().item<double>());
}

TEST(Precision, AutocastEndsWithItsGuard) {
  const torch::Tensor a = torch::ones({2, 2});
  torch::Tensor weight = torch::ones({2, 2}).requires_grad_();
  const Precision mixed = make_precision("fp16-mixed", torch::kFloat, torch::kCPU);
  for (const double value : {1, 2}) {  // the second time with the weight as it then is
    const AutocastGuard outer(mixed, torch::kCPU);
    const AutocastGuard inner(make_precision("bf16-mixed", torch::kFloat, torch::kCPU), torch::kCPU);
    EXPECT_EQ(torch::matmul(a, weight).scalar_type(), torch::kBFloat16);
    EXPECT_EQ(torch::matmul(a, weight)[0][0].item<double>(), 2 * value);
    const torch::NoGradGuard no_grad;
    weight.fill_(2);
  }
  EXPECT_EQ(torch::matmul(a, weight).scalar_type(), torch::kFloat);
  const AutocastGuard none(make_precision("fp32", torch::kFloat, torch::kCPU), torch::kCPU);
  EXPECT_EQ(torch::matmul(a, weight).scalar_type(), torch::kFloat);
}

TEST(Precision, SaysWhatItNeeds) {
  EXPECT_TRUE(make_precision("fp16", torch::kFloat, torch::kCPU).needs_scaler);
  EXPECT_FALSE(make_precision("bf16", torch::kFloat, torch::kCPU).needs_scaler);
  EXPECT_EQ(make_precision("bf16-true", torch::kFloat, torch::kCPU).parameters, torch::kBFloat16);
  EXPECT_FALSE(make_precision("bf16-true", torch::kFloat, torch::kCPU).autocast.has_value());
  EXPECT_EQ(make_precision("no", torch::kDouble, torch::kCPU).parameters, torch::kDouble);
  EXPECT_THAT(cxxrun::message_of<cxxrun::UsageError>([] { make_precision("bf16", torch::kDouble, torch::kCPU); }),
              HasSubstr("training.precision=bf16-mixed needs training.dtype=float32"));
}

TEST(Precision, Tf32IsForTheWholeProcess) {
  apply_tf32(make_precision("tf32", torch::kFloat, torch::kCPU));
  EXPECT_TRUE(at::globalContext().allowTF32CuBLAS() && at::globalContext().allowTF32CuDNN());
  apply_tf32(make_precision("fp32", torch::kFloat, torch::kCPU));
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS() || at::globalContext().allowTF32CuDNN());
}

}  // namespace
}  // namespace vla
