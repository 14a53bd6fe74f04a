#include "worker/policies/nn/activation_checkpoint.hpp"

#include <ATen/autocast_mode.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "tests/worker/policies/support.hpp"

namespace vla {
namespace {

// Counts the bytes of CPU tensors that are alive, while it lives.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() { c10::SetCPUAllocator(this, 1); }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, 1); }

  c10::DataPtr allocate(size_t bytes) override {
    auto* block = static_cast<char*>(std::aligned_alloc(kHeader, (bytes / kHeader + 2) * kHeader));
    *reinterpret_cast<size_t*>(block) = bytes;
    live_ += static_cast<int64_t>(bytes);
    return {block + kHeader, block + kHeader, &free_block, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  static int64_t live() { return live_; }

 private:
  static constexpr size_t kHeader = 64;  // the size stands before the data; vector instructions want the alignment
  static void free_block(void* data) {
    if (data == nullptr) return;
    char* block = static_cast<char*>(data) - kHeader;
    live_ -= static_cast<int64_t>(*reinterpret_cast<size_t*>(block));
    std::free(block);
  }
  static inline std::atomic<int64_t> live_ = 0;
  c10::Allocator* inner_ = c10::GetCPUAllocator();
};

at::Tensor two_layers(const torch::nn::Linear& first, const torch::nn::Linear& second, const at::Tensor& x) {
  return torch::nn::Linear(second)(torch::nn::Linear(first)(x).tanh()).square();
}

struct SmallNet {
  SmallNet() { torch::manual_seed(1); }
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all = first->parameters();
    for (const at::Tensor& parameter : second->parameters()) all.push_back(parameter);
    return all;
  }
  at::Tensor run(const at::Tensor& x, bool checkpointed) const {
    const auto segment = [*this](const std::vector<at::Tensor>& in) { return two_layers(first, second, in[0]); };
    return checkpointed ? checkpoint(segment, {x}, parameters()) : segment({x});
  }
  std::vector<at::Tensor> gradients(const at::Tensor& x, bool checkpointed) const {
    for (at::Tensor parameter : parameters()) parameter.mutable_grad() = at::Tensor();
    const at::Tensor input = x.detach().set_requires_grad(x.requires_grad());
    run(input, checkpointed).sum().backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : parameters()) all.push_back(parameter.grad());
    all.push_back(input.grad());
    return all;
  }

  torch::nn::Linear first{4, 64}, second{64, 4};
};

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (!a[i].defined()) continue;
    EXPECT_TRUE(a[i].equal(b[i])) << i;
  }
}

TEST(ActivationCheckpoint, GradientsAreBitEqualWithAndWithout) {
  const SmallNet net;
  for (const bool input_needs_gradient : {true, false}) {
    const at::Tensor x = torch::randn({8, 4}).requires_grad_(input_needs_gradient);
    expect_equal(net.gradients(x, true), net.gradients(x, false));
  }
}

TEST(ActivationCheckpoint, AFrozenParameterGetsNoGradient) {
  SmallNet net;
  net.first->weight.set_requires_grad(false);
  const at::Tensor x = torch::randn({8, 4}).requires_grad_();
  const auto gradients = net.gradients(x, true);
  EXPECT_FALSE(gradients[0].defined());
  expect_equal(gradients, net.gradients(x, false));
}

TEST(ActivationCheckpoint, AParameterUsedByTwoSegmentsGetsTheSum) {
  const SmallNet net;
  const at::Tensor x = torch::randn({8, 4});
  const auto gradient_of = [&](bool checkpointed) {
    for (at::Tensor parameter : net.parameters()) parameter.mutable_grad() = at::Tensor();
    net.run(net.run(x, checkpointed), checkpointed).sum().backward();
    return net.parameters()[0].grad().clone();
  };
  EXPECT_TRUE(gradient_of(true).equal(gradient_of(false)));
}

TEST(ActivationCheckpoint, IsAPlainCallWithoutGradients) {
  const SmallNet net;
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({8, 4});
  EXPECT_FALSE(net.run(x, true).requires_grad());
  EXPECT_TRUE(net.run(x, true).equal(net.run(x, false)));
}

TEST(ActivationCheckpoint, RecomputesUnderTheForwardsAutocast) {
  const SmallNet net;
  const at::Tensor x = torch::randn({8, 4});
  std::vector<at::ScalarType> seen;
  const auto segment = [&](const std::vector<at::Tensor>& in) {
    const at::Tensor hidden = torch::nn::Linear(net.first)(in[0]);
    seen.push_back(hidden.scalar_type());
    return hidden.to(at::kFloat).square();
  };
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor y = checkpoint(segment, {x}, net.first->parameters());
  // Weights cast by the forward without gradients must not serve a use that needs them.
  const at::Tensor plain = torch::nn::Linear(net.first)(x).to(at::kFloat).square();
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  y.sum().backward();
  EXPECT_THAT(seen, testing::ElementsAre(at::kBFloat16, at::kBFloat16));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  const at::Tensor gradient = net.first->weight.grad().clone();
  net.first->weight.mutable_grad() = at::Tensor();
  plain.sum().backward();
  ASSERT_TRUE(net.first->weight.grad().defined());
  EXPECT_TRUE(gradient.equal(net.first->weight.grad()));
}

class ActCheckpointing : public testing::Test {
 protected:
  std::shared_ptr<Policy> make(const char* name = "act") {
    torch::manual_seed(5);
    const PolicyEntry& entry = cxxrun::find_in_registry(policy_registry(), name, "policy.type");
    auto policy = entry.make(*test_options(entry), features_);
    policy->train();
    return policy;
  }

  PolicyFeatures features_ = test_features(96);
};

TEST_F(ActCheckpointing, GradientsAreBitEqualDropoutAndNoiseIncluded) {
  const auto policy = make();
  const Batch batch = random_batch(features_, {});
  loss_of(*policy, batch).loss.backward();
  std::map<std::string, at::Tensor> expected;
  for (const auto& entry : policy->named_parameters()) expected[entry.key()] = entry.value().grad().clone();
  policy->zero_grad();
  policy->set_activation_checkpointing(true);
  loss_of(*policy, batch).loss.backward();
  for (const auto& entry : policy->named_parameters()) EXPECT_TRUE(entry.value().grad().equal(expected[entry.key()])) << entry.key();
}

TEST_F(ActCheckpointing, ForwardKeepsLessMemory) {
  const auto policy = make();
  const Batch batch = random_batch(features_, {.rows = 8});
  const CountingAllocator allocator;
  const auto kept_by_forward = [&] {
    const int64_t before = CountingAllocator::live();
    const PolicyLoss loss = loss_of(*policy, batch);
    return CountingAllocator::live() - before;
  };
  kept_by_forward();  // tables of positions are made once
  const int64_t without = kept_by_forward();
  policy->set_activation_checkpointing(true);
  const int64_t with = kept_by_forward();
  std::printf("kept for backward: %.1f MB without, %.1f MB with\n", static_cast<double>(without) / 1e6, static_cast<double>(with) / 1e6);
  EXPECT_LT(2 * with, without);
}

TEST_F(ActCheckpointing, IsRefusedByAPolicyWithoutBlocks) {
  const auto policy = make("linear");
  policy->set_activation_checkpointing(false);
  EXPECT_THROW(policy->set_activation_checkpointing(true), cxxrun::UsageError);
}

}  // namespace
}  // namespace vla
