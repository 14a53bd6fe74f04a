// decode_bench DATASET [SAMPLES]: camera frames per second of one core's time, in order and at random places, as JSON lines.
#include <cstdlib>
#include <ctime>
#include <random>

#include <fmt/core.h>

#include "worker/data/dataset.hpp"

int main(int argc, char** argv) {
  using namespace vla::data;
  if (argc < 2) {
    fmt::print(stderr, "usage: decode_bench DATASET [SAMPLES]\n");
    return 2;
  }
  try {
    const auto dataset = open_dataset({.root = argv[1]});
    SampleRequest cameras;
    for (const Feature& feature : dataset->features()) {
      if (feature.type == FeatureType::kVisual) cameras.push_back({feature.key, {}});
    }
    const SampleLayout layout = dataset->layout(cameras);
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::byte*> destination;
    for (const Field& field : layout.fields) destination.push_back(memory.emplace_back(field.bytes_per_row).data());
    const int64_t samples = argc > 2 ? std::atoll(argv[2]) : 2000;
    std::mt19937_64 random(1);
    for (const bool shuffled : {false, true}) {
      const auto reader = dataset->open_reader(cameras);
      const std::clock_t start = std::clock();
      for (int64_t i = 0; i < samples; ++i)
        reader->read((shuffled ? static_cast<int64_t>(random() >> 1) : i) % dataset->size(), destination);
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      fmt::print("{{\"order\": \"{}\", \"frames_per_second\": {:.0f}}}\n", shuffled ? "shuffled" : "in order",
                 static_cast<double>(samples) * static_cast<double>(cameras.size()) / seconds);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "decode_bench: {}\n", error.what());
    return 1;
  }
}
