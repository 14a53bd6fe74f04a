// Training from frozen features beside training from images. With CXXRUN_TEST_DEVICE=cuda the features lie in a GPU's memory.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/worker/policies/support.hpp"
#include "worker/frozen_cache.hpp"
#include "worker/optim/precision.hpp"
#include "worker/training_data.hpp"

namespace vla {
namespace {

constexpr int64_t kSamples = 11, kRows = 4;

struct FrozenCacheTest : testing::Test {
  void SetUp() override {
    apply_tf32({});
    dataset = data::open_dataset({.root = "synthetic:frames=11,state=5,action=3,image=48x48,cameras=2,episodes=2"});
    features = policy_features(*dataset);
    const PolicyEntry& entry = cxxrun::find_in_registry(policy_registry(), "smolvla", "policy.type");
    torch::manual_seed(5);
    const auto options = test_options(entry);
    request = options->sample_request(features);
    policy = entry.make(*options, features);
    policy->to(device);
    policy->train();
  }

  Batch batch_of(const data::Slot& slot, const data::SampleLayout& layout) const {
    Batch batch = make_batch(slot, layout, device);
    batch.fields["observation.language.tokens"] = (batch.sample.unsqueeze(1) * 7 + torch::arange(6, batch.sample.options())) % 200 + 3;
    batch.fields["observation.language.attention_mask"] = (torch::arange(6, batch.sample.options()) < 4 + batch.sample.unsqueeze(1) % 3);
    return batch;
  }

  FrozenCache make(FrozenLevel level, const std::filesystem::path& folder = {}) {
    calls = 0;
    const auto of = [&, level](const data::Slot& slot, const data::SampleLayout& layout) {
      ++calls;
      return policy->frozen_features(level, batch_of(slot, layout));
    };
    return FrozenCache({.level = level, .gb = 0, .folder = folder, .identity = [&] { return frozen_fingerprint(*policy); }}, dataset, request, {.rows = kRows}, of, world);
  }

  // All samples, last ones first, the last batch with a row of padding.
  data::Loader loader(const data::SampleRequest& wanted) const {
    const auto plan = [](int64_t k) -> std::optional<data::MicroBatch> {
      if (k * kRows >= kSamples) return std::nullopt;
      data::MicroBatch batch{.step = k, .epoch = 0, .rows = {}};
      for (int64_t row = 0; row < kRows; ++row) {
        const int64_t sample = kSamples - 1 - (k * kRows + row);
        batch.rows.push_back({.sample = std::max<int64_t>(sample, 0), .position = row, .is_padding = sample < 0});
      }
      return batch;
    };
    return {dataset, wanted, plan, {.rows = kRows}};
  }

  void expect_losses_of_images(const FrozenCache& cache, FrozenLevel level) {
    const data::SampleRequest rest = without_images(request, features);
    EXPECT_EQ(rest.size() + 2, request.size());
    data::Loader whole = loader(request), reduced = loader(rest);
    int64_t compared = 0;
    while (const data::Slot* slot = whole.next()) {
      const at::Tensor expected = loss_of(*policy, batch_of(*slot, whole.layout())).loss;
      const data::Slot* other = reduced.next();
      Batch batch = batch_of(*other, reduced.layout());
      cache.add_to(batch, *other);
      EXPECT_EQ(batch.at(frozen_key(level)).size(0), kRows);
      EXPECT_LE(relative_error(loss_of(*policy, batch).loss, expected), device.is_cuda() ? 1e-4 : 1e-5);
      ++compared;
    }
    EXPECT_EQ(compared, 3);
  }

  const at::Device device = test_device();
  const cxxrun::World world{cxxrun::WorkerEnv{}, test_device()};
  std::shared_ptr<const data::Dataset> dataset;
  PolicyFeatures features;
  data::SampleRequest request;
  std::shared_ptr<Policy> policy;
  int calls = 0;
};

TEST_F(FrozenCacheTest, GivesTheLossesOfImagesInShuffledBatches) {
  for (const FrozenLevel level : {FrozenLevel::kVision, FrozenLevel::kPrefix}) {
    const FrozenCache cache = make(level);
    EXPECT_EQ(cache.is_on_device(), device.is_cuda());
    EXPECT_EQ(calls, 1 + 3);
    expect_losses_of_images(cache, level);
  }
}

TEST_F(FrozenCacheTest, AFileServesLaterRunsOfTheSameWeights) {
  if (device.is_cuda()) GTEST_SKIP() << "the GPU has room";
  const cxxrun::TempDir folder;
  make(FrozenLevel::kVision, folder.path());
  EXPECT_EQ(calls, 1 + 3);
  const FrozenCache again = make(FrozenLevel::kVision, folder.path());
  EXPECT_EQ(calls, 1);
  expect_losses_of_images(again, FrozenLevel::kVision);
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : policy->parameters()) parameter.mul_(1.1);
  }
  const FrozenCache other = make(FrozenLevel::kVision, folder.path());
  EXPECT_EQ(calls, 1 + 3);
  expect_losses_of_images(other, FrozenLevel::kVision);
}

TEST_F(FrozenCacheTest, IsRefusedWithAugmentationAndForPoliciesThatLearnWhole) {
  EXPECT_FALSE(frozen_level("off", true));
  EXPECT_EQ(frozen_level("prefix", false), FrozenLevel::kPrefix);
  EXPECT_THROW(frozen_level("vision", true), cxxrun::UsageError);
  const PolicyEntry& act = cxxrun::find_in_registry(policy_registry(), "act", "policy.type");
  EXPECT_THROW(act.make(*test_options(act), test_features())->frozen_features(FrozenLevel::kVision, {}), cxxrun::UsageError);
}

}  // namespace
}  // namespace vla
