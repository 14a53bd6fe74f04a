#include "worker/data/zarr/array_writer.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/error.hpp"

namespace vla::data {
namespace {

constexpr size_t kChunkBytes = 2'000'000;

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (!file) throw cxxrun::errno_error("cannot write " + path);
}

}  // namespace

ZarrArrayWriter::ZarrArrayWriter(std::string folder, std::vector<int64_t> shape, ItemType type, int64_t chunk_rows)
    : folder_(std::move(folder)), shape_(std::move(shape)), type_(type), row_bytes_(type.size) {
  for (size_t axis = 1; axis < shape_.size(); ++axis) row_bytes_ *= static_cast<size_t>(shape_[axis]);
  const size_t rows = chunk_rows > 0
                          ? static_cast<size_t>(chunk_rows)
                          : std::min(static_cast<size_t>(shape_[0]), (kChunkBytes + row_bytes_ - 1) / row_bytes_);
  chunk_.resize(rows * row_bytes_);
  std::vector<int64_t> chunks = shape_;
  chunks[0] = static_cast<int64_t>(rows);
  std::filesystem::create_directories(folder_);
  const nlohmann::ordered_json json = {{"chunks", chunks},      {"compressor", blosc_description()},
                                       {"dtype", type_.name()}, {"fill_value", 0},
                                       {"filters", nullptr},    {"order", "C"},
                                       {"shape", shape_},       {"zarr_format", 2}};
  write_file(folder_ + "/.zarray", json.dump(4));
}

void ZarrArrayWriter::append(std::span<const std::byte> row) {
  std::memcpy(chunk_.data() + filled_, row.data(), row_bytes_);
  filled_ += row_bytes_;
  if (filled_ == chunk_.size()) write_chunk();
}

void ZarrArrayWriter::finish() {
  if (filled_ > 0) write_chunk();
}

void ZarrArrayWriter::write_chunk() {
  std::fill(chunk_.begin() + static_cast<std::ptrdiff_t>(filled_), chunk_.end(), std::byte{0});
  std::string name = std::to_string(chunk_number_++);
  for (size_t axis = 1; axis < shape_.size(); ++axis) name += ".0";
  write_file(folder_ + "/" + name, blosc_encode(chunk_, type_.size));
  filled_ = 0;
}

}  // namespace vla::data
