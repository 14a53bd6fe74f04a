// Reads chosen columns and row groups of one parquet file into plain arrays of known type and shape. Hides Arrow from the rest.
// Everything unexpected (missing or truncated file, missing column, wrong type, list length, null) throws DataError naming file,
// column and row. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

// Encoded pictures of one feature, back to back.
struct BinaryColumn {
  std::vector<std::byte> bytes;
  std::vector<size_t> ends;  // row r is [ends[r - 1] or 0, ends[r])
};

class ParquetFile {
 public:
  explicit ParquetFile(std::string path);
  ~ParquetFile();

  const std::string& path() const { return path_; }
  int64_t row_count() const { return row_group_starts_.back(); }
  bool has_column(const std::string& name) const;
  // First row of each row group, then the number of rows.
  const std::vector<int64_t>& row_group_starts() const { return row_group_starts_; }

  // Append rows [begin, end) of the file, which must lie inside row group `group`.
  void read(const std::string& column, int group, int64_t begin, int64_t end, NumericColumn& out);
  // The column is a struct {bytes, path} as Hugging Face datasets store pictures, or plain binary.
  void read(const std::string& column, int group, int64_t begin, int64_t end, BinaryColumn& out);

  // Whole columns.
  std::vector<int64_t> integers(const std::string& column);
  std::vector<double> reals(const std::string& column);
  std::vector<std::string> strings(const std::string& column);

 private:
  struct Impl;
  template <class Use>
  void for_whole_column(const std::string& column, Use use);

  std::string path_;
  std::vector<int64_t> row_group_starts_ = {0};
  std::unique_ptr<Impl> impl_;
};

}  // namespace vla::data
