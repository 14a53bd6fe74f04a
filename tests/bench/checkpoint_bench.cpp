// How long a save stops training, and how long it takes in the background.
//
//     checkpoint_bench FOLDER [MIB = 700] [cpu|cuda] [TENSORS = 960]
//
// Saves TENSORS float32 tensors of MIB together, by default what a training of ACT has, five times into FOLDER, which it then removes.
// "take" is what the host needs to queue the copies, which a training does beside its step; "stall" is the time until the device has made
// them. The first save also makes the memory for them.
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
  if (argc < 2) return fmt::print(stderr, "checkpoint_bench FOLDER [MIB] [cpu|cuda] [TENSORS]\n"), 2;
  const std::filesystem::path folder = std::filesystem::path(argv[1]) / "checkpoint_bench";
  const int64_t mebibytes = argc > 2 ? std::stoll(argv[2]) : 700;
  const torch::Device device(argc > 3 ? argv[3] : "cpu");
  const int64_t count = argc > 4 ? std::stoll(argv[4]) : 960;
  vla::TensorMap tensors;
  for (int64_t i = 0; i < count; ++i) tensors[std::to_string(i)] = torch::rand({(mebibytes << 18) / count}, device);
  vla::CheckpointWriter writer({.output_dir = folder, .retention = {.keep = 1}, .device = device});
  for (int64_t step = 1; step <= 5; ++step) {
    if (device.is_cuda()) torch::cuda::synchronize();
    const auto start = std::chrono::steady_clock::now();
    vla::CheckpointFiles files;
    files.tensors["pretrained_model/model.safetensors"] = tensors;
    writer.take(std::move(files));
    const double taken = seconds_since(start);
    if (device.is_cuda()) torch::cuda::synchronize();
    const double stall = seconds_since(start);
    writer.save({.step = step, .global_batch = 1});
    const double started = seconds_since(start);
    const bool saved = writer.wait();
    fmt::print("save {}: {} MiB, take {:.2f} ms, stall {:.2f} ms, thread started after {:.2f} ms, on disk after {:.3f} s{}\n", step, mebibytes,
               1e3 * taken, 1e3 * stall, 1e3 * started, seconds_since(start), saved ? "" : " FAILED");
  }
  std::filesystem::remove_all(folder);
  return writer.failures() != 0;
}
