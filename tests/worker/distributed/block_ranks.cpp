// Run by cxxrun: every test is executed by all ranks together. Blocks of policies that must train N ranks as one.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "common/registry.hpp"
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
  static const cxxrun::World world(cxxrun::WorkerEnv::read(), at::kCPU, {.timeout = std::chrono::seconds(60)});
  return world;
}

constexpr int64_t kRowsPerRank = 4;

struct ConvNet : torch::nn::Module {
  ConvNet() {
    torch::manual_seed(3);
    conv = register_module("conv", torch::nn::Conv2d(2, 5, 3));
    norm = register_module("norm", std::make_shared<SyncBatchNorm2d>(5));
    head = register_module("head", torch::nn::Linear(5, 1));
    to(torch::kDouble);
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
  const at::Tensor all = torch::randn({total, 2, 6, 5}, torch::kDouble) * 2 + 5;
  const auto net = std::make_shared<ConvNet>();
  ConvNet reference;

  const int64_t begin = std::min(total, world().rank() * kRowsPerRank), end = std::min(total, begin + kRowsPerRank);
  const int64_t padding = kRowsPerRank - (end - begin);
  const at::Tensor x = at::cat({all.slice(0, begin, end), torch::full({padding, 2, 6, 5}, 77.0, torch::kDouble)});
  const at::Tensor weight = at::cat({torch::ones({end - begin}), torch::zeros({padding})});
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

// Batch norms, noise, timesteps and the random crop of the whole policy: several ranks, the last with a padded row, and one.
TEST(DiffusionPolicy, RanksTrainAsOne) {
  const PolicyFeatures features = test_features(64);
  const PolicyEntry& entry = cxxrun::find_in_registry(policy_registry(), "diffusion", "policy.type");
  const auto options = test_options(entry);
  dynamic_cast<DiffusionOptions&>(*options).crop_shape = {48, 56};
  const auto make = [&] {
    torch::manual_seed(4);
    auto policy = entry.make(*options, features);
    policy->to(torch::kDouble);
    return policy;
  };
  const std::shared_ptr<Policy> policy = make(), reference = make();
  policy->set_all_reduce_sum([](at::Tensor sums) { world().all_reduce_sum(sums); });

  const int64_t total = 2 * world().size() - 1, begin = 2 * world().rank(), end = std::min(total, begin + 2);
  torch::manual_seed(8);
  const Batch all = random_batch(options->sample_request(features), features, total, torch::kDouble);
  const Batch part = take_rows(all, begin, end, 2 - (end - begin));
  const at::Tensor counts = reference->loss_counts(all);
  DistributedDataParallel<Policy> ddp(policy, world().group(), {.reduction = DdpOptions::Reduction::kSum});
  Optimizer optimizer(policy->parameter_groups(), options->optimizer_preset());
  Optimizer reference_optimizer(reference->parameter_groups(), options->optimizer_preset());
  for (int64_t step = 0; step < 3; ++step) {
    policy->zero_grad();
    reference->zero_grad();
    ddp.forward([&](Policy& module) { return module.compute_loss(part, counts, StepRandom(5, step, part.position)); }).loss.backward();
    reference->compute_loss(all, counts, StepRandom(5, step, all.position)).loss.backward();
    optimizer.step();
    reference_optimizer.step();
  }
  const auto same = [](const std::string& name, const at::Tensor& actual, const at::Tensor& expected) {
    if (name.ends_with("pool.nets.bias")) return;  // no effect on the loss: its gradient is rounding noise, of which Adam makes steps
    EXPECT_LE((actual - expected).abs().max().item<double>(), 1e-10) << name;
  };
  for (const auto& item : reference->named_parameters()) same(item.key(), policy->named_parameters()[item.key()], item.value());
  for (const auto& item : reference->named_buffers()) same(item.key(), policy->named_buffers()[item.key()], item.value());
}

TEST(ActivationCheckpoint, GradientsOfDistributedTrainingAreTheSame) {
  const PolicyFeatures features = test_features();
  const PolicyEntry& entry = cxxrun::find_in_registry(policy_registry(), "act", "policy.type");
  torch::manual_seed(8);
  const Batch all = random_batch(features, {.rows = 2 * world().size()});
  const Batch part = take_rows(all, 2 * world().rank(), 2 * world().rank() + 2);
  for (const bool find_unused : {false, true}) {
    std::map<std::string, at::Tensor> gradients[2];
    for (const bool on : {false, true}) {
      torch::manual_seed(4);
      const std::shared_ptr<Policy> policy = entry.make(*test_options(entry), features);
      policy->set_activation_checkpointing(on);
      DistributedDataParallel<Policy> ddp(policy, world().group(), {.reduction = DdpOptions::Reduction::kSum, .bucket_bytes = 1 << 16,
                                          .first_bucket_bytes = 1 << 12, .find_unused_parameters = find_unused});
      for (int step = 0; step < 3; ++step) {  // the second only accumulates; buckets are rebuilt after the first
        if (step == 1) policy->zero_grad();
        ddp.set_sync(step != 1);
        ddp.forward([&](Policy& module) { return loss_of(module, part); }).loss.backward();
      }
      for (const auto& item : policy->named_parameters()) gradients[on][item.key()] = item.value().grad().clone();
    }
    // Gradients become ready in another order, so buckets differ, and with them the order in which Gloo adds up three ranks.
    double largest = 0;
    for (const auto& [name, gradient] : gradients[0]) largest = std::max(largest, gradient.abs().max().item<double>());
    const double tolerance = world().size() <= 2 ? 0 : 1e-6 * largest;
    for (const auto& [name, gradient] : gradients[0]) {
      EXPECT_LE((gradients[1][name] - gradient).abs().max().item<double>(), tolerance) << name;
    }
  }
}

}  // namespace
}  // namespace vla
