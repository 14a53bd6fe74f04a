// Reads rows of a ZarrTable's features, in memory or not, as samples have them: numbers in the feature's dtype, pictures uint8
// [height, width, 3]. Keeps the chunks used last: open files where single rows can be taken out of them, else decoded. Throws DataError
// naming array and file or row. Refers to the table. One thread.
#pragma once

#include <list>
#include <optional>
#include <vector>

#include "worker/data/zarr/table.hpp"

namespace vla::data {

class RowSource {
 public:
  explicit RowSource(const ZarrTable& table) : table_(table) {}
  void read(size_t feature, int64_t row, std::byte* out);

 private:
  struct Block {
    const ZarrArray* array = nullptr;
    int64_t number = 0;
    std::optional<ChunkFile> file = {};
    std::vector<std::byte> rows = {};  // without a file
  };
  Block& block(const ZarrArray& array, int64_t number);
  void read_items(const ZarrArray& array, int64_t row);
  void round_levels(const ZarrArray& array, int64_t row);

  const ZarrTable& table_;
  std::list<Block> blocks_;  // most recently used first
  size_t decoded_bytes_ = 0;  // of all blocks_
  std::vector<std::byte> row_;
  std::vector<float> levels_;
};

}  // namespace vla::data
