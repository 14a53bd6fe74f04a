// How long a save stops training, and how long it takes in the background.
//
//     checkpoint_bench FOLDER [MIB = 1024] [cpu|cuda]
//
// Saves MIB of float32 tensors of 16 MiB five times into FOLDER, which it then removes. "stall" is the time from a save's begin until
// the device is free again for the next step; the first save also allocates the host's memory.
#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <torch/torch.h>

#include "worker/checkpoint/checkpoint.hpp"

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "checkpoint_bench FOLDER [MIB] [cpu|cuda]\n"), 2;
  const std::filesystem::path folder = std::filesystem::path(argv[1]) / "checkpoint_bench";
  const int64_t mebibytes = argc > 2 ? std::stoll(argv[2]) : 1024;
  const torch::Device device(argc > 3 ? argv[3] : "cpu");
  vla::TensorMap tensors;
  for (int64_t i = 0; i < mebibytes / 16; ++i) tensors[std::to_string(i)] = torch::rand({4 << 20}, device);
  vla::CheckpointWriter writer({.output_dir = folder, .retention = {.keep = 1}});
  for (int64_t step = 1; step <= 5; ++step) {
    if (device.is_cuda()) torch::cuda::synchronize();
    const auto start = std::chrono::steady_clock::now();
    vla::CheckpointFiles files;
    files.tensors["pretrained_model/model.safetensors"] = tensors;
    writer.save({.step = step, .global_batch = 1}, std::move(files));
    const double queued = seconds_since(start);
    if (device.is_cuda()) torch::cuda::synchronize();
    const double stall = seconds_since(start);
    const bool saved = writer.wait();
    fmt::print("save {}: {} MiB, save() {:.3f} s, stall {:.3f} s, on disk after {:.3f} s{}\n", step, mebibytes, queued, stall,
               seconds_since(start), saved ? "" : " FAILED");
  }
  std::filesystem::remove_all(folder);
  return writer.failures() != 0;
}
