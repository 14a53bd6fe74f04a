#include "worker/data/zarr/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/zarr/row_source.hpp"

namespace vla::data {
namespace {

constexpr int64_t kSampledFrames = 100;

}  // namespace

DatasetStats compute_stats(const ZarrTable& table) {
  DatasetStats stats;
  RowSource source(table);
  for (size_t feature = 0; feature < table.features.size(); ++feature) {
    const Feature& described = table.features[feature];
    const bool is_image = described.type == FeatureType::kVisual, sampled = table.columns[feature].values.empty();
    const int64_t rows = table.buffer.frames(), count = sampled ? std::min(rows, kSampledFrames) : rows;
    const auto size = static_cast<size_t>(is_image ? 3 : element_count(described.shape));
    std::vector<std::byte> raw(bytes_per_frame(described));
    std::vector<float> values(raw.size() / size_of(described.dtype));
    std::vector<double> mean(size), square(size), low(size, INFINITY), high(size, -INFINITY);
    const double scale = is_image ? 1.0 / 255 : 1;
    double seen = 0, frames = 0;
    // Welford's way, which does not lose the variance of values that are far from 0.
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = sampled && count > 1 ? i * (rows - 1) / (count - 1) : i;
      if (table.broken_between(row, row + 1) != nullptr) continue;
      source.read(feature, row, raw.data());
      ++frames;
      switch (described.dtype) {
        case DType::kUInt8:
        case DType::kBool:
          for (size_t j = 0; j < values.size(); ++j) values[j] = std::to_integer<uint8_t>(raw[j]);
          break;
        case DType::kInt64:
          convert_items({'i', 8}, raw, DType::kFloat32, reinterpret_cast<std::byte*>(values.data()));
          break;
        case DType::kFloat32:
          std::memcpy(values.data(), raw.data(), raw.size());
      }
      for (size_t j = 0; j < values.size(); ++j) {
        const size_t k = j % size;
        if (k == 0) ++seen;
        const double value = values[j] * scale, before = value - mean[k];
        mean[k] += before / seen;
        square[k] += before * (value - mean[k]);
        low[k] = std::min(low[k], value);
        high[k] = std::max(high[k], value);
      }
    }
    if (frames == 0) continue;
    if (is_image && table.columns[feature].array->type().kind == 'f' &&
        *std::max_element(high.begin(), high.end()) <= scale) {
      throw cxxrun::DataError("{}: '{}' has no brightness above 1 of 255; store pictures as uint8", table.buffer.root,
                              table.columns[feature].array->name());
    }
    for (double& value : square) value = std::sqrt(value / seen);
    const std::vector<int64_t> shape = is_image ? std::vector<int64_t>{3, 1, 1} : described.shape;
    stats[described.key] = {{"mean", {shape, mean}},
                            {"std", {shape, square}},
                            {"min", {shape, low}},
                            {"max", {shape, high}},
                            {"count", {{1}, {frames}}}};
  }
  return stats;
}

}  // namespace vla::data
