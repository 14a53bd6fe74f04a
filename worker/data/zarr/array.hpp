// One array of a zarr v2 store in a folder: .zarray and chunk files. Rows are the entries along the first axis; a block is the rows of
// one chunk of that axis. Reads the metadata at once and chunks when asked. Everything unexpected (other formats, missing, short or
// damaged files) throws DataError naming array, file and remedy. A missing chunk file is an error and not its fill value: datasets that
// were copied in part are common, writers that leave chunks out are not. Immutable, so shared by threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"
#include "worker/data/zarr/chunk_file.hpp"
#include "worker/data/zarr/codec.hpp"

namespace vla::data {

// NumPy's type of an array's items; little-endian.
struct ItemType {
  char kind = 'u';  // 'b' bool, 'u', 'i', 'f'
  size_t size = 1;
  std::string name() const;  // "<f4"
  bool operator==(const ItemType&) const = default;
};

class ZarrArray {
 public:
  ZarrArray(std::string folder, std::string name);  // `name`: for messages, "data/state"

  const std::string& name() const { return name_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  std::vector<int64_t> row_shape() const { return {shape_.begin() + 1, shape_.end()}; }
  const ItemType& type() const { return type_; }
  int64_t rows() const { return shape_[0]; }
  int64_t row_items() const { return row_items_; }
  size_t row_bytes() const { return static_cast<size_t>(row_items_) * type_.size; }

  int64_t rows_per_block() const { return chunks_[0]; }
  int64_t block_count() const { return (rows() + chunks_[0] - 1) / chunks_[0]; }
  int64_t rows_of_block(int64_t block) const;
  // Looks at the sizes and headers of a block's files without decompressing them.
  void check_block(int64_t block) const;
  // Native items, row-major: rows_of_block(block) * row_bytes() bytes.
  std::vector<std::byte> read_block(int64_t block) const;

  // Whether single rows can be taken out of a block's file, and the file to do it.
  bool has_row_files() const { return codec_.can_decode_part() && whole_rows(); }
  ChunkFile open_block(int64_t block) const;

 private:
  bool whole_rows() const;  // a chunk has them
  std::string chunk_path(std::span<const int64_t> index) const;
  std::string read_chunk_file(const std::string& path) const;
  template <class Use>
  void for_chunks(int64_t block, Use use) const;

  std::string folder_, name_;
  std::vector<int64_t> shape_, chunks_;
  ItemType type_;
  ZarrCodec codec_;
  char separator_ = '.';
  int64_t row_items_ = 1;
  size_t chunk_bytes_ = 0;
};

// Items as the values of a sample: `out` of dtype kBool, kInt64 or kFloat32, or kUInt8 with 0 <= value <= 255.
void convert_items(ItemType type, std::span<const std::byte> items, DType dtype, std::byte* out);

}  // namespace vla::data
