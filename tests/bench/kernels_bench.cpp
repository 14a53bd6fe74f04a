// What the kernels of worker/cuda take beside the operations they stand for, forward and backward, at the sizes of a training.
//
//     kernels_bench [cpu|cuda] [ROWS = 64] [float|bf16] [NAME]
//
// ROWS is the batch; NAME: only of blocks whose name contains it. Microseconds. On a GPU: replayed as one graph of 20 repetitions, and
// launched one by one with the waiting for the device. GB/s: of the fast form, if every input, output and gradient crosses the memory
// once each way; more than the memory has is the cache's. On a CPU the fast form is the kernels' twin that tests run, not made for speed.
// A status of 1: a block failed.
#include <algorithm>
#include <chrono>
#include <cmath>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include "tests/bench/kernel_blocks.hpp"
#include "worker/policies/nn/fast_mode.hpp"

namespace vla {
namespace {

struct Times {
  double launched = 0, replayed = NAN;  // us
  int64_t bytes = 0;
};

// Of up to 50 rounds, in a second or a little more.
double median_us(const at::Device& device, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  for (int round = 0; round < 55 && (round < 5 || Clock::now() < deadline); ++round) {
    if (device.is_cuda()) torch::cuda::synchronize();
    const auto start = Clock::now();
    work();
    if (device.is_cuda()) torch::cuda::synchronize();
    if (round >= 2) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

double replayed_us(const at::Device& device, const std::function<void()>& work) {
  constexpr int kRepetitions = 20;
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    for (int i = 0; i < kRepetitions; ++i) work();
  } catch (...) {
    graph.capture_end();  // else the stream would go on recording
    throw;
  }
  graph.capture_end();
  return median_us(device, [&] { graph.replay(); }) / kRepetitions;
}

int64_t bytes_of(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.numel() * tensor.element_size();
  return bytes;
}

Times measure(const Block& block, const at::Device& device, bool fast) {
  const FastModeScope mode(fast);
  const Work work = block.make(fast);
  Tensors leaves, gradients;
  for (const at::Tensor& input : work.inputs) {
    if (input.requires_grad()) leaves.push_back(input);
  }
  const Tensors outputs = work.forward();
  for (const at::Tensor& output : outputs) gradients.push_back(torch::randn_like(output));
  const auto run = [&] {
    const Tensors results = work.forward();
    if (!leaves.empty()) torch::autograd::grad(results, leaves, gradients);
  };
  Times times{.launched = median_us(device, run), .bytes = work.bytes};
  if (device.is_cuda()) times.replayed = replayed_us(device, run);
  if (times.bytes == 0) times.bytes = (bytes_of(work.inputs) + bytes_of(outputs)) * (leaves.empty() ? 1 : 2) + bytes_of(leaves);
  return times;
}

}  // namespace
}  // namespace vla

int main(int argc, char** argv) {
  const bool on_gpu = argc > 1 && std::string(argv[1]) == "cuda";
  const at::Device device = on_gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const int64_t rows = argc > 2 ? std::stoll(argv[2]) : 64;
  const at::ScalarType dtype = argc > 3 && std::string(argv[3]) == "float" ? at::kFloat : at::kBFloat16;
  const std::string wanted = argc > 4 ? argv[4] : "";
  std::optional<c10::cuda::CUDAStreamGuard> stream;  // the default one cannot be captured
  if (on_gpu) stream.emplace(c10::cuda::getStreamFromPool());
  const auto options = at::TensorOptions(dtype).device(device);
  fmt::print("{:<44}{:>10}{:>10}{:>8}{:>8}{:>12}{:>12}\n", fmt::format("{} rows, {}, us", rows, c10::toString(dtype)), "plain", "fast", "ratio",
             "GB/s", on_gpu ? "launched:" : "", on_gpu ? "fast" : "");
  int status = 0;
  for (const vla::Block& block : vla::kernel_blocks(rows, options)) {
    if (block.name.find(wanted) == std::string::npos) continue;
    try {
      const vla::Times plain = vla::measure(block, device, false), fast = vla::measure(block, device, true);
      const double plain_us = on_gpu ? plain.replayed : plain.launched, fast_us = on_gpu ? fast.replayed : fast.launched;
      fmt::print("{:<44}{:>10.1f}{:>10.1f}{:>8.1f}{:>8}", block.name, plain_us, fast_us, plain_us / fast_us,
                 block.is_memory_bound ? fmt::format("{:.0f}", static_cast<double>(fast.bytes) / fast_us / 1000) : "");
      fmt::print("{}\n", on_gpu ? fmt::format("{:>12.1f}{:>12.1f}", plain.launched, fast.launched) : "");
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}: {}\n", block.name, error.what());
      status = 1;
    }
  }
  return status;
}
