// What SmolVLA's fused blocks take beside the ATen expressions they stand for, forward and backward, at the sizes of a training.
//
//     fused_blocks_bench [cpu|cuda] [ROWS = 64] [float|bf16]
//
// ROWS is the batch. Microseconds, the median of 50 rounds, launches and the waiting for the device included.
#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <torch/torch.h>

#include "worker/image_ops.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/flow_matching.hpp"
#include "worker/policies/nn/fused_norm.hpp"
#include "worker/policies/nn/grouped_attention.hpp"
#include "worker/policies/nn/resize_pixels.hpp"
#include "worker/policies/nn/rotary.hpp"
#include "worker/policies/nn/silu_mul.hpp"

namespace {

using Tensors = std::vector<at::Tensor>;

struct Block {
  const char* name;
  std::function<at::Tensor(const Tensors&)> function;  // called in fast mode and in reference mode
  std::vector<std::vector<int64_t>> shapes;  // of inputs; with a gradient if `backward`
  bool backward = true;
};

double median_us(const at::Device& device, const std::function<void()>& work) {
  std::vector<double> times;
  for (int round = 0; round < 55; ++round) {
    if (device.is_cuda()) torch::cuda::synchronize();
    const auto start = std::chrono::steady_clock::now();
    work();
    if (device.is_cuda()) torch::cuda::synchronize();
    if (round >= 5) times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

at::Tensor norm_of(const Tensors& in) {
  if (vla::fast_mode()) {
    const auto result = vla::add_rms_norm(in[0], in[1], in[2], 1e-5);
    return result.sum + result.normalized;
  }
  const at::Tensor sum = in[0] + in[1], wide = sum.to(at::kFloat);
  return sum + in[2] * (wide * (wide.square().mean(-1, true) + 1e-5).rsqrt()).to(sum.scalar_type());
}

}  // namespace

int main(int argc, char** argv) {
  const at::Device device(argc > 1 ? argv[1] : "cpu");
  const int64_t rows = argc > 2 ? std::stoll(argv[2]) : 64;
  const at::ScalarType dtype = argc > 3 && std::string(argv[3]) == "float" ? at::kFloat : at::kBFloat16;
  const auto rotary = vla::rotary_table(torch::arange(50, at::TensorOptions(at::kLong).device(device)).unsqueeze(0), 64, 10000);
  const vla::AttentionMask mask(torch::ones({rows, 50, 228}, at::TensorOptions(at::kBool).device(device)));
  const at::Tensor noise = torch::randn({rows, 50, 32}, device), actions = torch::randn({rows, 50, 7}, at::TensorOptions(dtype).device(device));
  const at::Tensor is_pad = torch::zeros({rows, 50}, at::TensorOptions(at::kBool).device(device)), weight = torch::ones({rows}, device);

  const std::vector<Block> blocks = {
      {"add + rms norm, 50 x 720", norm_of, {{rows, 50, 720}, {rows, 50, 720}, {720}}},
      {"silu * up, 50 x 2048", [](const Tensors& in) { return vla::fast_mode() ? vla::silu_mul(in[0], in[1]) : at::silu(in[0]) * in[1]; }, {{rows * 50, 2048}, {rows * 50, 2048}}},
      {"rotary, 50 x 20 heads",
       [&](const Tensors& in) {
         const auto rotated = vla::rotate_heads(in[0], in[1], rotary, 5);
         return rotated.query.sum() + rotated.key.sum();
       },
       {{rows, 50, 15, 64}, {rows, 50, 5, 64}}},
      {"attention, 50 x 15 heads over 228",
       [&](const Tensors& in) { return vla::grouped_attention(in[0], {in[1], in[2]}, mask); }, {{rows, 50, 5, 3, 64}, {rows, 228, 5, 64}, {rows, 228, 5, 64}}},
      {"flow matching's loss, 50 x 32",
       [&](const Tensors& in) {
         if (vla::fast_mode()) return vla::flow_loss_sums(in[0], actions, noise, is_pad, weight)[vla::kValidActions];
         const at::Tensor error = (noise - at::constant_pad_nd(actions.to(at::kFloat), {0, 25}) - in[0].to(at::kFloat)).square();
         return (error.slice(2, 0, 7) * (is_pad.logical_not() * weight.unsqueeze(1)).unsqueeze(-1)).sum();
       },
       {{rows, 50, 32}}},
      {"image 256 -> 512",
       [](const Tensors& in) { return vla::fast_mode() ? vla::resize_cameras(in, 512, 512, in[0].scalar_type()) : vla::resize_with_pad(in[0], 512, 512, vla::PadPlace::kLeftTop) * 2.0 - 1.0; },
       {{rows, 3, 256, 256}}, false},
  };
  fmt::print("{:<36}{:>14}{:>14}{:>10}\n", fmt::format("{} rows, {}, us", rows, c10::toString(dtype)), "ATen", "fused", "ratio");
  for (const Block& block : blocks) {
    Tensors inputs;
    for (const auto& shape : block.shapes) inputs.push_back(torch::randn(shape, at::TensorOptions(dtype).device(device)).requires_grad_(block.backward));
    double us[2];
    for (const bool fast : {false, true}) {
      const vla::FastModeScope mode(fast);
      us[fast] = median_us(device, [&] {
        const at::Tensor output = block.function(inputs);
        if (block.backward) torch::autograd::grad({output}, inputs, {at::ones_like(output)});
      });
    }
    fmt::print("{:<36}{:>14.0f}{:>14.0f}{:>10.1f}\n", block.name, us[0], us[1], us[0] / us[1]);
  }
  return 0;
}
