// The arithmetic of counter-based random numbers, shared word for word by the CPU loop and the CUDA kernel. Plain C++, no Torch.
// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11; constants of Random123.
// The seed is the key and (block of 4 elements, position, step, stream) the counter, so no two uses can share a block.
#pragma once

#include <cmath>
#include <cstdint>

#include "worker/cuda/pack.hpp"

namespace vla {

struct PhiloxBlock {
  uint32_t word[4];
};

VLA_HOST_DEVICE inline PhiloxBlock philox4x32_10(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter.word[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Fills (or, for dropout, maps) a contiguous tensor [outer, rows, inner]. Element e of a row is that of the row's own
// [outer, inner] tensor: where the rows stand does not change their numbers.
struct CounterFill {
  enum class Kind : uint8_t { kUniform, kNormal, kDropout };

  Kind kind = Kind::kUniform;
  double drop_probability = 0;
  uint64_t seed = 0;
  uint32_t step = 0;
  const int64_t* step_on_device = nullptr;  // read instead of `step` where given: a captured graph runs at many steps
  uint32_t stream = 0;
  const int64_t* position = nullptr;  // [rows], on the tensor's device
  int64_t outer = 1, rows = 0, inner = 0;

  VLA_HOST_DEVICE uint32_t current_step() const { return step_on_device != nullptr ? static_cast<uint32_t>(*step_on_device) : step; }
  VLA_HOST_DEVICE int64_t elements_per_row() const { return outer * inner; }
  VLA_HOST_DEVICE int64_t blocks_per_row() const { return (elements_per_row() + 3) / 4; }
};

// Elements [4*block, 4*block+4) of one row. `input` is read for dropout only.
template <class T>
VLA_HOST_DEVICE void counter_fill_block(const CounterFill& fill, const T* input, T* output, int64_t row, int64_t block) {
  using R = Real<T>;
  const PhiloxBlock bits =
      philox4x32_10({{static_cast<uint32_t>(block), static_cast<uint32_t>(fill.position[row]), fill.current_step(), fill.stream}},
                    static_cast<uint32_t>(fill.seed), static_cast<uint32_t>(fill.seed >> 32));
  const double to_unit = 1.0 / 4294967296.0;
  for (int lane = 0; lane < 4; ++lane) {
    const int64_t element = block * 4 + lane;
    if (element >= fill.elements_per_row()) return;
    const int64_t at = (element / fill.inner * fill.rows + row) * fill.inner + element % fill.inner;
    const uint32_t word = bits.word[lane];
    switch (fill.kind) {
      case CounterFill::Kind::kUniform:  // 24 bits: exact in float32, so every dtype sees the same number
        output[at] = static_cast<T>(static_cast<float>(word >> 8) * (1.0f / 16777216.0f));
        break;
      case CounterFill::Kind::kNormal: {  // Box-Muller in double: devices and dtypes agree up to the last rounding
        const double radius = std::sqrt(-2.0 * std::log((bits.word[lane & 2] + 1.0) * to_unit));
        const double angle = 6.283185307179586 * (bits.word[lane | 1] * to_unit);
        output[at] = static_cast<T>(static_cast<R>(radius * ((lane & 1) != 0 ? std::sin(angle) : std::cos(angle))));
        break;
      }
      case CounterFill::Kind::kDropout: {
        const bool keep = word * to_unit >= fill.drop_probability;
        const R scale = static_cast<R>(1.0 / (1.0 - fill.drop_probability));
        output[at] = keep ? static_cast<T>(static_cast<R>(input[at]) * scale) : static_cast<T>(R{0});
        break;
      }
    }
  }
}

}  // namespace vla
