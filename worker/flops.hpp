// How many floating-point operations a step takes and which share of the device's peak that is (model FLOPs utilisation, MFU =
// FLOPs / (step time * peak)). Counted are matrix products, convolutions and attention (2 operations a multiply-add), forward and
// backward; element-wise work is not, nor what fused attention computes again in its backward pass. Masked-out attention counts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace vla {

// Of everything `work` runs on this thread, and on autograd's while this one waits for it in backward(). One at a time.
int64_t count_flops(const std::function<void()>& work);

// Dense peak of a GPU by its name, in FLOP/s as its data sheet says; nullopt where none is on record. `precision` as in
// training.precision.
std::optional<double> peak_flops(std::string_view gpu, std::string_view precision);

}  // namespace vla
