// loader_bench DATASET BATCH THREADS CACHE EPOCHS [CACHE_DIR]: micro-batches a second of shuffled epochs, one JSON line for each.
// Reads cameras, state and action of every sample. BATCH 1 to 4096; CACHE as data.cache.
#include <chrono>
#include <cstdlib>
#include <ctime>

#include <fmt/core.h>

#include "worker/data/cached_dataset.hpp"
#include "worker/data/loader.hpp"

int main(int argc, char** argv) {
  using namespace vla::data;
  if (argc < 6) {
    fmt::print(stderr, "usage: loader_bench DATASET BATCH THREADS CACHE EPOCHS [CACHE_DIR]\n");
    return 2;
  }
  try {
    auto dataset = open_dataset({.root = argv[1]});
    const int64_t batch = std::atoll(argv[2]), epochs = std::atoll(argv[5]);
    SampleRequest request;
    for (const Feature& feature : dataset->features()) {
      if (feature.type != FeatureType::kOther) request.push_back({feature.key, {}});
    }
    const DataOptions options{.cache = argv[4], .cache_dir = argc > 6 ? argv[6] : ""};
    uint64_t memory = frame_memory(options, 1);
    dataset = cached_dataset(dataset, request, options, {argv[1]}, memory);
    const Sampler sampler({.dataset_size = dataset->size(), .global_batch = batch});
    const int64_t steps = sampler.steps_per_epoch();
    const auto plan = [&](int64_t step) -> std::optional<MicroBatch> {
      if (step >= epochs * steps) return std::nullopt;
      return sampler.micro_batch(step, 0, 1, 0, 1);
    };
    Loader loader(dataset, request, plan, {.rows = batch, .num_threads = std::atoi(argv[3])});
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto start = std::chrono::steady_clock::now();
      const std::clock_t processor_start = std::clock();
      for (int64_t step = 0; step < steps; ++step) loader.next();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      const double processor_seconds = static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC;
      fmt::print("{{\"epoch\": {}, \"batches_per_second\": {:.2f}, \"batches_per_core_second\": {:.2f}}}\n", epoch + 1,
                 static_cast<double>(steps) / seconds.count(), static_cast<double>(steps) / processor_seconds);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "loader_bench: {}\n", error.what());
    return 1;
  }
}
