// Paths of data and video files, made from the patterns of meta/info.json. Python's str.format for the names that occur there, with
// zero-padded widths. The result stays inside the dataset's folder. Throws DataError naming `source` and the pattern.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace vla::data {

struct PathPattern {
  std::string text;  // "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
  std::string root;  // the dataset's folder
  std::string source;  // the file that the pattern stands in

  using Numbers = std::initializer_list<std::pair<std::string_view, int64_t>>;
  std::string expand(const std::string& video_key, Numbers numbers) const;
};

}  // namespace vla::data
