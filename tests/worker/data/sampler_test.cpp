#include "worker/data/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"

namespace vla::data {
namespace {

using testing::ElementsAre;

TEST(Sampler, EpochSeedIsNumpysSeedSequence) {
  EXPECT_EQ(epoch_seed(0, 0), 15793235383387715774U);
  EXPECT_EQ(epoch_seed(0, 1), 5836529245451711556U);
  EXPECT_EQ(epoch_seed(1000, 0), 18002537191484623697U);
  EXPECT_EQ(epoch_seed(1000, 1), 4723298920957447659U);
  EXPECT_EQ(epoch_seed(1000, 2), 10333021008979026547U);
  EXPECT_EQ(epoch_seed(1337, 5), 12186182865496951562U);
  EXPECT_EQ(epoch_seed((uint64_t{1} << 40) + 3, 7), 9355368801950390439U);
}

TEST(Sampler, PermutationIsTorchRandperm) {
  std::vector<int64_t> order = random_permutation(1000, epoch_seed(1000, 0));
  EXPECT_THAT(std::vector<int64_t>(order.begin(), order.begin() + 10),
              ElementsAre(552, 848, 919, 652, 581, 603, 115, 48, 317, 46));
  std::sort(order.begin(), order.end());
  std::vector<int64_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(order, all);
}

TEST(Sampler, OrderIsLeRobotsInEveryEpoch) {
  const Sampler sampler({.dataset_size = 20, .global_batch = 20, .seed = 1000});
  EXPECT_THAT(sampler.global_batch(0),
              ElementsAre(12, 15, 3, 19, 9, 8, 17, 18, 6, 4, 0, 13, 16, 7, 14, 2, 5, 11, 10, 1));
  EXPECT_THAT(sampler.global_batch(1),
              ElementsAre(14, 2, 4, 19, 16, 13, 5, 3, 18, 15, 10, 9, 12, 0, 6, 1, 17, 11, 8, 7));
  EXPECT_THAT(sampler.global_batch(0)[0], 12);
}

TEST(Sampler, ShortBatchEndsTheEpochUnlessDropped) {
  const Sampler keeping({.dataset_size = 10, .global_batch = 4, .shuffle = false});
  EXPECT_EQ(keeping.steps_per_epoch(), 3);
  EXPECT_THAT(keeping.global_batch(2), ElementsAre(8, 9));
  EXPECT_THAT(keeping.global_batch(3), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(keeping.micro_batch(3, 0, 1, 0, 1).epoch, 1);

  const Sampler dropping({.dataset_size = 10, .global_batch = 4, .shuffle = false, .drop_last = true});
  EXPECT_EQ(dropping.steps_per_epoch(), 2);
  EXPECT_THAT(dropping.global_batch(2), ElementsAre(0, 1, 2, 3));
  EXPECT_THROW(Sampler({.dataset_size = 3, .global_batch = 4, .drop_last = true}), cxxrun::UsageError);
  EXPECT_THROW(Sampler({.dataset_size = 0, .global_batch = 4}), cxxrun::UsageError);
}

struct Split {
  int64_t dataset_size, global_batch, accumulation, world_size;
  // Real positions, one list a part in order of part number.
  std::vector<std::vector<int64_t>> parts;
  int64_t rows;
};

TEST(Sampler, PartsCoverTheGlobalBatchOnceOnAnyWorld) {
  const Split splits[] = {
      {8, 8, 1, 1, {{0, 1, 2, 3, 4, 5, 6, 7}}, 8},
      {8, 8, 1, 2, {{0, 1, 2, 3}, {4, 5, 6, 7}}, 4},
      {8, 8, 2, 2, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, 2},
      {8, 8, 1, 3, {{0, 1, 2}, {3, 4, 5}, {6, 7}}, 3},
      {3, 8, 1, 4, {{0}, {1}, {2}, {}}, 2},
      {8, 3, 1, 4, {{0}, {1}, {2}, {}}, 1},
  };
  for (const Split& split : splits) {
    SCOPED_TRACE(testing::Message() << split.global_batch << " on " << split.accumulation << "x" << split.world_size);
    EXPECT_EQ(micro_batch_rows(split.global_batch, split.accumulation, split.world_size), split.rows);
    const Sampler sampler({.dataset_size = split.dataset_size, .global_batch = split.global_batch, .seed = 7});
    const std::vector<int64_t> batch = sampler.global_batch(0);
    for (int64_t part = 0; part < split.accumulation * split.world_size; ++part) {
      const MicroBatch micro = sampler.micro_batch(0, part / split.world_size, split.accumulation,
                                                   part % split.world_size, split.world_size);
      ASSERT_EQ(static_cast<int64_t>(micro.rows.size()), split.rows);
      std::vector<int64_t> positions;
      for (const SampleRef& row : micro.rows) {
        EXPECT_EQ(row.sample, batch[static_cast<size_t>(row.position)]);
        if (!row.is_padding) positions.push_back(row.position);
      }
      EXPECT_EQ(positions, split.parts[static_cast<size_t>(part)]);
    }
  }
}

// How often each sample occurs in epochs [0, epochs).
std::vector<int64_t> counts(const SamplerOptions& options, int64_t epochs) {
  const Sampler sampler(options);
  std::vector<int64_t> seen(static_cast<size_t>(options.dataset_size));
  for (int64_t step = 0; step < epochs * sampler.steps_per_epoch(); ++step) {
    for (const int64_t sample : sampler.global_batch(step)) ++seen[static_cast<size_t>(sample)];
  }
  return seen;
}

int64_t sum(const std::vector<int64_t>& values, size_t begin, size_t end) {
  return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(begin),
                         values.begin() + static_cast<std::ptrdiff_t>(end), int64_t{0});
}

TEST(WeightedSampler, SharesFollowTheWeightsInEveryEpoch) {
  SamplerOptions options{.dataset_size = 100, .global_batch = 7, .seed = 3, .parts = {{80, 1}, {15, 2}, {5, 3}}};
  for (int64_t epochs : {1, 2, 5}) {
    const auto seen = counts(options, epochs);
    EXPECT_EQ(sum(seen, 0, 80), epochs * 17) << "16.67: the largest remainders get one more";
    EXPECT_EQ(sum(seen, 80, 95), epochs * 33);
    EXPECT_EQ(sum(seen, 95, 100), epochs * 50);
  }
}

TEST(WeightedSampler, SamplesOfAPartAreSeenEquallyOften) {
  const SamplerOptions options{.dataset_size = 100, .global_batch = 10, .parts = {{80, 1}, {15, 2}, {5, 3}}};
  for (int64_t epochs : {1, 3, 30}) {
    const auto seen = counts(options, epochs);
    for (const auto& [begin, end] : {std::pair(0, 80), {80, 95}, {95, 100}}) {
      const auto [least, most] = std::minmax_element(seen.begin() + begin, seen.begin() + end);
      EXPECT_LE(*most - *least, 1) << begin << " after " << epochs;
    }
  }
}

TEST(WeightedSampler, IsAFunctionOfSeedAndEpoch) {
  const SamplerOptions options{.dataset_size = 40, .global_batch = 8, .seed = 5, .parts = {{10, 1}, {30, 1}}};
  const Sampler one(options), other(options);
  other.global_batch(17);
  for (const int64_t step : {0, 12, 3, 100}) EXPECT_EQ(one.global_batch(step), other.global_batch(step));
  EXPECT_NE(one.global_batch(0), one.global_batch(5)) << "epochs differ";
  std::vector<int64_t> joined;  // the ranks' parts of a batch
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const SampleRef& row : one.micro_batch(2, 0, 1, rank, 4).rows) joined.push_back(row.sample);
  }
  EXPECT_EQ(joined, one.global_batch(2));
}

TEST(WeightedSampler, MixesThePartsThroughTheEpoch) {
  const Sampler sampler({.dataset_size = 1000, .global_batch = 100, .parts = {{500, 1}, {500, 1}}});
  for (int64_t step = 0; step < 10; ++step) {
    const auto batch = sampler.global_batch(step);
    const auto first = std::count_if(batch.begin(), batch.end(), [](int64_t sample) { return sample < 500; });
    EXPECT_GT(first, 25);
    EXPECT_LT(first, 75);
  }
}

TEST(WeightedSampler, WithoutWeightsTheOrderIsUnchanged) {
  const Sampler plain({.dataset_size = 20, .global_batch = 20, .seed = 1000, .parts = {}});
  EXPECT_THAT(plain.global_batch(0), ElementsAre(12, 15, 3, 19, 9, 8, 17, 18, 6, 4, 0, 13, 16, 7, 14, 2, 5, 11, 10, 1));
  const Sampler in_order({.dataset_size = 6, .global_batch = 6, .shuffle = false, .parts = {{2, 2}, {4, 1}}});
  EXPECT_THAT(in_order.global_batch(0), ElementsAre(0, 1, 0, 1, 2, 3));
  EXPECT_THAT(in_order.global_batch(1), ElementsAre(0, 1, 0, 1, 4, 5));
}

TEST(WeightedSampler, WrongPartsAreRefused) {
  const auto with = [](std::vector<SamplerPart> parts) {
    Sampler({.dataset_size = 10, .global_batch = 2, .parts = std::move(parts)});
  };
  EXPECT_THROW(with({{5, 1}, {5, 0}}), cxxrun::UsageError);
  EXPECT_THROW(with({{5, 1}, {5, -1}}), cxxrun::UsageError);
  EXPECT_THROW(with({{5, 1}, {5, NAN}}), cxxrun::UsageError);
  EXPECT_THROW(with({{5, 1}, {5, 0.001}}), cxxrun::UsageError) << "never seen";
  EXPECT_THROW(with({{5, 1}, {6, 1}}), cxxrun::Error);
}

}  // namespace
}  // namespace vla::data
