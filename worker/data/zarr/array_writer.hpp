// Writes one array of a zarr v2 store row by row: blosc with zstd level 3 and byte shuffle, chunks along the first axis: of
// `chunk_rows`, or of about 2 MB as diffusion policy's replay buffer chooses them. Throws Error when a file cannot be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/data/zarr/array.hpp"

namespace vla::data {

class ZarrArrayWriter {
 public:
  ZarrArrayWriter(std::string folder, std::vector<int64_t> shape, ItemType type, int64_t chunk_rows = 0);

  size_t row_bytes() const { return row_bytes_; }
  void append(std::span<const std::byte> row);  // row_bytes() bytes
  void finish();  // after shape[0] rows

 private:
  void write_chunk();

  std::string folder_;
  std::vector<int64_t> shape_;
  ItemType type_;
  size_t row_bytes_ = 0, filled_ = 0;  // bytes of the chunk
  int64_t chunk_number_ = 0;
  std::vector<std::byte> chunk_;
};

}  // namespace vla::data
