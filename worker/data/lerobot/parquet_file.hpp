// Reads chosen columns and row groups of one parquet file into plain arrays of known type and shape. Hides Arrow from the rest.
// Everything unexpected (missing or truncated file, missing column, wrong type, list length, null) throws DataError naming file,
// column and row. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"

namespace vla::data {

// Rows of one numeric feature: row-major, bytes_per_row each.
struct NumericColumn {
  DType dtype = DType::kFloat32;  // kBool, kInt64 or kFloat32: what values of any numeric type are stored as
  std::vector<int64_t> shape;  // of a row; a scalar column has shape [1] or []
  std::vector<std::byte> values;
};

struct RowRange {
  int64_t begin = 0, end = 0;
};

// Encoded pictures of one feature, back to back.
struct BinaryColumn {
  std::vector<std::byte> bytes;
  std::vector<size_t> ends;  // of each row

  std::span<const std::byte> row(size_t number) const {
    const size_t begin = number == 0 ? 0 : ends[number - 1];
    return {bytes.data() + begin, ends[number] - begin};
  }
};

class ParquetFile {
 public:
  explicit ParquetFile(std::string path);
  ~ParquetFile();

  const std::string& path() const { return path_; }
  int64_t row_count() const { return row_group_starts_.back(); }
  bool has_column(const std::string& name) const;

  // Append the rows of `ranges`, which are ascending and inside the file.
  void read(const std::string& column, std::span<const RowRange> ranges, NumericColumn& out);
  // The column is a struct {bytes, path} as Hugging Face datasets store pictures, or plain binary.
  void read(const std::string& column, std::span<const RowRange> ranges, BinaryColumn& out);

  // Whole columns.
  std::vector<int64_t> integers(const std::string& column);
  std::vector<double> reals(const std::string& column);
  std::vector<std::string> strings(const std::string& column);

 private:
  struct Impl;
  template <class Use>
  void for_rows(const std::string& column, std::span<const RowRange> ranges, Use use);
  std::array<RowRange, 1> all_rows() const;

  std::string path_;
  std::vector<int64_t> row_group_starts_ = {0};  // and the number of rows
  std::unique_ptr<Impl> impl_;
};

}  // namespace vla::data
