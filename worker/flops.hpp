// How many floating-point operations a step takes and which share of the device's peak that is (model FLOPs utilisation, MFU).
// Counted are matrix products and convolutions (2 operations a multiply-add), by LibTorch's own formulas; a backward pass counts
// as two forward passes: MFU = 3 * forward FLOPs / (step time * peak). Element-wise work and SDPA's fused kernels are left out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace vla {

// Of everything `work` runs on this thread.
int64_t count_flops(const std::function<void()>& work);

// Dense peak of a GPU by its name, in FLOP/s as its data sheet says; nullopt where none is on record. `precision` as in
// training.precision.
std::optional<double> peak_flops(std::string_view gpu, std::string_view precision);

}  // namespace vla
