#include "worker/data/zarr/row_source.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {
namespace {

constexpr size_t kOpenFiles = 32;  // and decoded blocks, per reader
constexpr size_t kDecodedBytes = size_t{64} << 20;

}  // namespace

RowSource::Block& RowSource::block(const ZarrArray& array, int64_t number) {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const Block& b) { return b.array == &array && b.number == number; });
  if (found != blocks_.end()) {
    blocks_.splice(blocks_.begin(), blocks_, found);
    return blocks_.front();
  }
  Block fresh{&array, number};
  if (array.has_row_files()) {
    fresh.file.emplace(array.open_block(number));
  } else {
    fresh.rows = array.read_block(number);
  }
  decoded_bytes_ += fresh.rows.size();
  blocks_.push_front(std::move(fresh));
  while (blocks_.size() > 1 && (blocks_.size() > kOpenFiles || decoded_bytes_ > kDecodedBytes)) {
    decoded_bytes_ -= blocks_.back().rows.size();
    blocks_.pop_back();
  }
  return blocks_.front();
}

// Into row_, as stored.
void RowSource::read_items(const ZarrArray& array, int64_t row) {
  row_.resize(array.row_bytes());
  Block& source = block(array, row / array.rows_per_block());
  const auto offset = static_cast<size_t>(row % array.rows_per_block()) * row_.size();
  if (source.file) {
    source.file->read(offset, row_);
  } else {
    std::memcpy(row_.data(), source.rows.data() + offset, row_.size());
  }
}

// Pictures that are stored as floats between 0 and 255.
void RowSource::round_levels(const ZarrArray& array, int64_t row) {
  levels_.resize(static_cast<size_t>(array.row_items()));
  convert_items(array.type(), row_, DType::kFloat32, reinterpret_cast<std::byte*>(levels_.data()));
  row_.resize(levels_.size());
  for (size_t i = 0; i < levels_.size(); ++i) {
    if (!(levels_[i] >= 0 && levels_[i] <= 255)) {
      throw cxxrun::DataError("{}/{}: row {}: {} is no brightness between 0 and 255; store pictures as uint8",
                              table_.buffer.root, array.name(), row, levels_[i]);
    }
    row_[i] = static_cast<std::byte>(std::lround(levels_[i]));
  }
}

void RowSource::read(size_t feature, int64_t row, std::byte* out) {
  const Feature& described = table_.features[feature];
  const auto& [array, values] = table_.columns[feature];
  if (!values.empty()) {
    const size_t bytes = bytes_per_frame(described);
    std::memcpy(out, values.data() + static_cast<size_t>(row) * bytes, bytes);
    return;
  }
  read_items(*array, row);
  if (described.type != FeatureType::kVisual) return convert_items(array->type(), row_, described.dtype, out);
  if (array->type().kind == 'f') round_levels(*array, row);
  if (array->shape()[1] != 3) {
    std::memcpy(out, row_.data(), row_.size());
    return;
  }
  const size_t pixels = row_.size() / 3;
  for (size_t channel = 0; channel < 3; ++channel) {
    for (size_t i = 0; i < pixels; ++i) out[i * 3 + channel] = row_[channel * pixels + i];
  }
}

}  // namespace vla::data
