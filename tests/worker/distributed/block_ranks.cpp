// Run by cxxrun: every test is executed by all ranks together. Blocks of policies that must train N ranks as one.
#include <set>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "common/registry.hpp"
#include "tests/worker/policies/golden.hpp"
#include "tests/worker/policies/support.hpp"
#include "worker/distributed/ddp.hpp"
#include "worker/distributed/process_group.hpp"
#include "worker/optim/optimizer.hpp"
#include "worker/policies/diffusion/diffusion_options.hpp"
#include "worker/policies/nn/sync_batch_norm.hpp"

namespace vla {
namespace {

using cxxrun::DdpOptions;
using cxxrun::DistributedDataParallel;

const cxxrun::World& world() {
  // CXXRUN_TEST_DEVICE=cuda: the same tests with NCCL.
  static const auto env = cxxrun::WorkerEnv::read();
  static const cxxrun::World world(env, cxxrun::choose_device(test_device().str(), env), {.timeout = std::chrono::seconds(60)});
  return world;
}

constexpr int64_t kRowsPerRank = 4;

struct ConvNet : torch::nn::Module {
  ConvNet() {
    torch::manual_seed(3);
    conv = register_module("conv", torch::nn::Conv2d(2, 5, 3));
    norm = register_module("norm", std::make_shared<SyncBatchNorm2d>(5));
    head = register_module("head", torch::nn::Linear(5, 1));
    to(world().device(), torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, const BatchStatistics& batch) {
    return head(torch::relu(norm->forward(conv(x), batch)).mean({2, 3})).square().squeeze(1);  // [B]
  }

  torch::nn::Conv2d conv{nullptr};
  std::shared_ptr<SyncBatchNorm2d> norm;
  torch::nn::Linear head{nullptr};
};

// One rank with all rows against all ranks with their part, padded with rows of weight 0.
void expect_one_training(int64_t total) {
  torch::manual_seed(9);
  const at::Tensor all = torch::randn({total, 2, 6, 5}, torch::kDouble).to(world().device()) * 2 + 5;
  const auto net = std::make_shared<ConvNet>();
  ConvNet reference;

  const int64_t begin = std::min(total, world().rank() * kRowsPerRank), end = std::min(total, begin + kRowsPerRank);
  const int64_t padding = kRowsPerRank - (end - begin);
  const at::Tensor x = at::cat({all.slice(0, begin, end), torch::full({padding, 2, 6, 5}, 77.0, all.options())});
  const at::Tensor weight = at::cat({torch::ones({end - begin}), torch::zeros({padding})}).to(world().device());
  const BatchStatistics batch{.weight = weight, .all_reduce_sum = [](at::Tensor sums) { world().all_reduce_sum(sums); }};

  DistributedDataParallel<ConvNet> ddp(net, world().group(), {.reduction = DdpOptions::Reduction::kSum});
  for (int step = 0; step < 2; ++step) {
    for (auto* module : {net.get(), &reference}) module->zero_grad();
    ddp.forward([&](ConvNet& module) { return (module.forward(x, batch) * weight).sum() / static_cast<double>(total); }).backward();
    (reference.forward(all, {}).sum() / static_cast<double>(total)).backward();
    for (const auto& entry : reference.named_parameters()) {
      // conv.bias has no effect before a batch norm: its gradient is rounding noise.
      const double scale = entry.key() == "conv.bias" ? 1 : entry.value().grad().abs().max().item<double>();
      const at::Tensor difference = net->named_parameters()[entry.key()].grad() - entry.value().grad();
      EXPECT_LE(difference.abs().max().item<double>(), 1e-11 * scale) << entry.key();
    }
    for (const auto& entry : reference.named_buffers()) {
      EXPECT_LE(relative_error(net->named_buffers()[entry.key()], entry.value()), 1e-12) << entry.key();
    }
  }
  // To the last bit the same on all ranks, so that ranks cannot drift apart.
  at::Tensor mean = net->named_buffers()["norm.running_mean"].clone(), root = mean.clone();
  world().broadcast({root});
  EXPECT_TRUE(mean.equal(root));
}

TEST(SyncBatchNorm, RanksWithAPaddedRowTrainAsOne) { expect_one_training(kRowsPerRank * world().size() - 1); }

TEST(SyncBatchNorm, ARankWithoutAnyRowTakesPart) {
  expect_one_training(std::max<int64_t>(3, kRowsPerRank * (world().size() - 1)));
}

class PolicyRanks : public testing::TestWithParam<std::string> {};

// Every policy: noise, dropout, timesteps, crops and batch norms on several ranks, the last with a padded row, against one.
TEST_P(PolicyRanks, TrainAsOne) {
  const PolicyFeatures features = test_features();
  const PolicyEntry& entry = cxxrun::find_in_registry(policy_registry(), GetParam(), "policy.type");
  const auto options = test_options(entry);
  if (auto* diffusion = dynamic_cast<DiffusionOptions*>(options.get())) diffusion->crop_shape = {40, 44};
  const auto make = [&] {
    torch::manual_seed(4);
    auto policy = entry.make(*options, features);
    policy->to(world().device(), torch::kDouble);
    policy->train();
    return policy;
  };
  const std::shared_ptr<Policy> policy = make(), reference = make();
  policy->set_all_reduce_sum([](at::Tensor sums) { world().all_reduce_sum(sums); });

  const int64_t total = 2 * world().size() - 1, begin = 2 * world().rank(), end = std::min(total, begin + 2);
  torch::manual_seed(8);
  const Batch all = on_device(random_batch(options->sample_request(features), features, total, torch::kDouble), world().device());
  const Batch part = take_rows(all, begin, end, 2 - (end - begin));
  at::Tensor counts = policy->loss_counts(part);
  world().all_reduce_sum(counts);
  DistributedDataParallel<Policy> ddp(policy, world().group(), {.reduction = DdpOptions::Reduction::kSum});
  Optimizer optimizer(policy->parameter_groups(), options->optimizer_preset());
  Optimizer reference_optimizer(reference->parameter_groups(), options->optimizer_preset());
  std::set<std::string> rounding;  // parameters without effect on the loss: Adam makes whole steps of what is left of their gradients
  for (int64_t step = 0; step < 2; ++step) {
    policy->zero_grad();
    reference->zero_grad();
    const auto loss = ddp.forward([&](Policy& module) { return module.compute_loss(part, counts, StepRandom(5, step, part.position)); });
    loss.loss.backward();
    const auto expected = reference->compute_loss(all, reference->loss_counts(all), StepRandom(5, step, all.position));
    expected.loss.backward();
    at::Tensor sum = loss.loss.detach().clone();
    world().all_reduce_sum(sum);
    EXPECT_LE(relative_error(sum, expected.loss), 1e-12);
    const auto gradients = gradients_of(*reference);
    const double largest = largest_value(gradients);
    for (const auto& [name, gradient] : gradients_of(*policy)) {
      EXPECT_LE((gradient - gradients.at(name)).abs().max().item<double>(), 1e-10 * largest) << name;
      if (gradients.at(name).abs().max().item<double>() < 1e-12 * largest) rounding.insert(name);
    }
    optimizer.step();
    reference_optimizer.step();
  }
  const auto trained = named_tensors(*policy);
  for (const auto& [name, expected] : named_tensors(*reference)) {
    if (rounding.contains(name)) continue;
    EXPECT_LE((trained.at(name) - expected).abs().max().item<double>(), 1e-10) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, PolicyRanks, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const PolicyEntry& entry : policy_registry()) names.emplace_back(entry.name);
                           return names;
                         }()),
                         [](const auto& test) { return test.param; });

TEST(ActivationCheckpoint, GradientsOfDistributedTrainingAreTheSame) {
  const PolicyFeatures features = test_features();
  const PolicyEntry& entry = cxxrun::find_in_registry(policy_registry(), "act", "policy.type");
  torch::manual_seed(8);
  const Batch all = on_device(random_batch(features, {.rows = 2 * world().size()}), world().device());
  const Batch part = take_rows(all, 2 * world().rank(), 2 * world().rank() + 2);
  for (const bool find_unused : {false, true}) {
    std::map<std::string, at::Tensor> gradients[2];
    for (const bool on : {false, true}) {
      torch::manual_seed(4);
      const std::shared_ptr<Policy> policy = entry.make(*test_options(entry), features);
      policy->to(world().device());
      policy->set_activation_checkpointing(on);
      DistributedDataParallel<Policy> ddp(policy, world().group(), {.reduction = DdpOptions::Reduction::kSum, .bucket_bytes = 1 << 16,
                                          .first_bucket_bytes = 1 << 12, .find_unused_parameters = find_unused});
      for (int step = 0; step < 3; ++step) {  // the second only accumulates; buckets are rebuilt after the first
        if (step == 1) policy->zero_grad();
        ddp.set_sync(step != 1);
        ddp.forward([&](Policy& module) { return loss_of(module, part); }).loss.backward();
      }
      gradients[on] = gradients_of(*policy);
    }
    // Gradients become ready in another order, so buckets differ, and with them the order in which Gloo adds up three ranks.
    // A GPU's atomic additions come in any order, too.
    const double tolerance = world().size() <= 2 && world().device().is_cpu() ? 0 : 1e-5 * largest_value(gradients[0]);
    for (const auto& [name, gradient] : gradients[0]) {
      EXPECT_LE((gradients[1][name] - gradient).abs().max().item<double>(), tolerance) << name;
    }
  }
}

}  // namespace
}  // namespace vla
