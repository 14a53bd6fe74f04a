#include "worker/data/sampler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "common/error.hpp"

namespace vla::data {

uint64_t epoch_seed(uint64_t seed, uint64_t epoch) {
  // numpy/random/bit_generator.pyx, SeedSequence: every integer is a list of 32-bit words without leading zeros.
  std::vector<uint32_t> words;
  for (uint64_t value : {seed, epoch}) {
    do {
      words.push_back(static_cast<uint32_t>(value));
      value >>= 32;
    } while (value != 0);
  }
  uint32_t multiplier = 0x43b0d7e5;
  const auto hash = [&](uint32_t value) {
    value ^= multiplier;
    multiplier *= 0x931e8875;
    value *= multiplier;
    return value ^ (value >> 16);
  };
  const auto mix = [](uint32_t x, uint32_t y) {
    const uint32_t result = 0xca01f9ddU * x - 0x4973f715U * y;
    return result ^ (result >> 16);
  };
  std::array<uint32_t, 4> pool;
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = hash(i < words.size() ? words[i] : 0);
  for (size_t from = 0; from < pool.size(); ++from) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
    }
  }
  for (size_t i = pool.size(); i < words.size(); ++i) {
    for (uint32_t& entry : pool) entry = mix(entry, hash(words[i]));
  }
  uint64_t result = 0;
  uint32_t key = 0x8b51f9dd;
  for (const int i : {0, 1}) {
    uint32_t value = pool[i] ^ key;
    key *= 0x58f38ded;
    value *= key;
    value ^= value >> 16;
    result |= static_cast<uint64_t>(value) << (32 * i);
  }
  return result;
}

std::vector<int64_t> random_permutation(int64_t count, uint64_t seed) {
  // ATen's randperm on the CPU: a Fisher-Yates shuffle from the front, biased by the modulo; at::mt19937 takes 32 bits of seed.
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::mt19937 engine(static_cast<uint32_t>(seed));
  const bool wide = count >= std::numeric_limits<uint32_t>::max() / 20;
  for (int64_t i = 0; i < count - 1; ++i) {
    uint64_t random = engine();
    if (wide) random = random << 32 | engine();
    std::swap(order[i], order[i + static_cast<int64_t>(random % static_cast<uint64_t>(count - i))]);
  }
  return order;
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  if (options.dataset_size < 1) throw cxxrun::UsageError("the dataset has no samples");
  if (options.global_batch < 1)
    throw cxxrun::UsageError("the batch size must be at least 1, not {}", options.global_batch);
  if (steps_per_epoch() == 0) {
    throw cxxrun::UsageError(
        "a batch of {} does not fit into a dataset of {} samples; lower training.batch_size or allow the short batch",
        options.global_batch, options.dataset_size);
  }
  if (!options.parts.empty()) count_shares();
}

// In proportion to the weights, rounded so that they add up: the largest remainders get one more.
void Sampler::count_shares() {
  double weights = 0;
  int64_t samples = 0;
  for (const SamplerPart& part : options_.parts) {
    if (part.size < 1 || !(part.weight > 0) || !std::isfinite(part.weight)) {
      throw cxxrun::UsageError("a dataset of {} samples cannot have the weight {}; weights are positive numbers",
                               part.size, part.weight);
    }
    weights += part.weight;
    samples += part.size;
  }
  if (samples != options_.dataset_size)
    throw cxxrun::Error("the parts have {} samples, the dataset {}", samples, options_.dataset_size);
  std::vector<std::pair<double, size_t>> remainders;  // negative, so that ascending order puts the largest first
  for (size_t i = 0; i < options_.parts.size(); ++i) {
    const double share = static_cast<double>(samples) * (options_.parts[i].weight / weights);
    shares_.push_back(static_cast<int64_t>(share));
    remainders.emplace_back(static_cast<double>(shares_.back()) - share, i);
  }
  std::sort(remainders.begin(), remainders.end());
  const int64_t left = samples - std::accumulate(shares_.begin(), shares_.end(), int64_t{0});
  for (int64_t i = 0; i < left; ++i) ++shares_[remainders[static_cast<size_t>(i) % remainders.size()].second];
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (shares_[i] > 0) continue;
    throw cxxrun::UsageError(
        "dataset {} would never be seen: its weight {} is too small beside the others' ({} in all)", i + 1,
        options_.parts[i].weight, weights);
  }
}

int64_t Sampler::steps_per_epoch() const {
  const int64_t rounding = options_.drop_last ? 0 : options_.global_batch - 1;
  return (options_.dataset_size + rounding) / options_.global_batch;
}

int64_t Sampler::global_batch_size(int64_t step) const {
  return std::min(options_.global_batch, options_.dataset_size - step % steps_per_epoch() * options_.global_batch);
}

int64_t Sampler::consumed_samples(int64_t steps) const {
  const int64_t per_epoch = options_.drop_last ? steps_per_epoch() * options_.global_batch : options_.dataset_size;
  return steps / steps_per_epoch() * per_epoch + steps % steps_per_epoch() * options_.global_batch;
}

std::vector<int64_t> Sampler::global_batch(int64_t step) const {
  const auto begin = epoch_order(step / steps_per_epoch()).begin() + step % steps_per_epoch() * options_.global_batch;
  return {begin, begin + global_batch_size(step)};
}

MicroBatch Sampler::micro_batch(int64_t step, int64_t micro, int64_t accumulation, int64_t rank,
                                int64_t world_size) const {
  const std::vector<int64_t> batch = global_batch(step);
  const auto size = static_cast<int64_t>(batch.size());
  const int64_t parts = accumulation * world_size;
  const int64_t part = micro * world_size + rank;
  const auto begin_of = [&](int64_t p) { return p * (size / parts) + std::min(p, size % parts); };

  MicroBatch result{step, step / steps_per_epoch(), {}};
  for (int64_t i = begin_of(part); i < begin_of(part + 1); ++i) result.rows.push_back({batch[i], i, false});
  // Padding repeats a row that is decoded anyway, or the batch's first where this part is empty.
  SampleRef padding = result.rows.empty() ? SampleRef{batch.front(), 0, true} : result.rows.back();
  padding.is_padding = true;
  result.rows.resize(static_cast<size_t>(micro_batch_rows(options_.global_batch, accumulation, world_size)), padding);
  return result;
}

// Part by part; epoch_order shuffles them together.
std::vector<int64_t> Sampler::samples_of_parts(int64_t epoch) const {
  std::vector<int64_t> samples;
  int64_t first = 0;
  for (size_t i = 0; i < shares_.size(); ++i) {
    const int64_t size = options_.parts[i].size, end = (epoch + 1) * shares_[i];
    // A seed of its own for each part: ~i is no epoch's number.
    const uint64_t seed = epoch_seed(options_.seed, ~uint64_t{i});
    for (int64_t at = epoch * shares_[i]; at < end;) {
      const int64_t round = at / size, stop = std::min(end, (round + 1) * size);
      const std::vector<int64_t> order = options_.shuffle
                                             ? random_permutation(size, epoch_seed(seed, static_cast<uint64_t>(round)))
                                             : std::vector<int64_t>();
      for (; at < stop; ++at)
        samples.push_back(first + (options_.shuffle ? order[static_cast<size_t>(at % size)] : at % size));
    }
    first += size;
  }
  return samples;
}

const std::vector<int64_t>& Sampler::epoch_order(int64_t epoch) const {
  if (cached_epoch_ != epoch) {
    if (options_.shuffle) {
      order_ = random_permutation(options_.dataset_size, epoch_seed(options_.seed, static_cast<uint64_t>(epoch)));
    } else {
      order_.resize(static_cast<size_t>(options_.dataset_size));
      std::iota(order_.begin(), order_.end(), int64_t{0});
    }
    if (!shares_.empty()) {
      const std::vector<int64_t> samples = samples_of_parts(epoch);
      for (int64_t& place : order_) place = samples[static_cast<size_t>(place)];
    }
    cached_epoch_ = epoch;
  }
  return order_;
}

int64_t micro_batch_rows(int64_t global_batch, int64_t accumulation, int64_t world_size) {
  const int64_t parts = accumulation * world_size;
  return (global_batch + parts - 1) / parts;
}

}  // namespace vla::data
