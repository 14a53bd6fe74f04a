#include "worker/data/zarr/array.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "worker/data/json_file.hpp"

namespace vla::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLargestArray = int64_t{1} << 48, kLargestRow = int64_t{1} << 28, kLargestChunk = 2'000'000'000;

// `limit`: of the product of all numbers.
std::vector<int64_t> get_sizes(const Json& json, const char* key, int64_t limit, const std::string& place) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  std::vector<int64_t> sizes;
  bool valid = found != json.end() && found->is_array() && !found->empty() && found->size() <= 8;
  int64_t product = 1;
  for (size_t i = 0; valid && i < found->size(); ++i) {
    const Json& size = (*found)[i];
    valid = size.is_number_unsigned() && size.get<uint64_t>() >= 1 &&
            size.get<uint64_t>() <= static_cast<uint64_t>(limit / product);
    if (valid) product *= sizes.emplace_back(size.get<int64_t>());
  }
  if (!valid)
    throw cxxrun::DataError("{}: '{}' must be a list of 1 to 8 positive numbers that fit into memory", place, key);
  return sizes;
}

ItemType get_type(const Json& json, const std::string& place) {
  const auto found = json.find("dtype");
  const std::string text = found != json.end() && found->is_string() ? found->get<std::string>() : "";
  for (const ItemType& known : {ItemType{'b', 1},
                                {'u', 1},
                                {'i', 1},
                                {'u', 2},
                                {'i', 2},
                                {'u', 4},
                                {'i', 4},
                                {'u', 8},
                                {'i', 8},
                                {'f', 2},
                                {'f', 4},
                                {'f', 8}}) {
    if (text == known.name()) return known;
  }
  throw cxxrun::DataError(
      "{}: dtype '{}' is not supported (little-endian numbers and bool are, as '<f4' or '|u1'); write the array again "
      "with one of these",
      place, text.empty() && found != json.end() ? "of several fields" : text);
}

struct Half {
  uint16_t bits;
  explicit operator float() const {
    const float sign = bits >> 15 ? -1 : 1;
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
    return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                 : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25));
  }
};

template <class Value, class Item>
Value to_value(Item item) {
  if constexpr (std::floating_point<Item> && std::integral<Value> && !std::same_as<Value, bool>) {
    // A plain cast of what does not fit is undefined.
    if (std::isnan(item)) return 0;
    if (item >= static_cast<Item>(std::numeric_limits<Value>::max())) return std::numeric_limits<Value>::max();
    if (item <= static_cast<Item>(std::numeric_limits<Value>::min())) return std::numeric_limits<Value>::min();
  }
  return static_cast<Value>(item);
}

template <class Value>
Value to_value(Half half) {
  return to_value<Value>(static_cast<float>(half));
}

template <class Item, class Value>
void convert(std::span<const std::byte> items, std::byte* out) {
  for (size_t i = 0; i < items.size() / sizeof(Item); ++i) {
    Item item;
    std::memcpy(&item, items.data() + i * sizeof item, sizeof item);
    const auto value = to_value<Value>(item);
    std::memcpy(out + i * sizeof value, &value, sizeof value);
  }
}

template <class Value>
void convert_to(ItemType type, std::span<const std::byte> items, std::byte* out) {
  const auto is = [&](char kind, size_t size) { return type == ItemType{kind, size}; };
  if (is('u', 1) || is('b', 1)) return convert<uint8_t, Value>(items, out);
  if (is('i', 1)) return convert<int8_t, Value>(items, out);
  if (is('u', 2)) return convert<uint16_t, Value>(items, out);
  if (is('i', 2)) return convert<int16_t, Value>(items, out);
  if (is('u', 4)) return convert<uint32_t, Value>(items, out);
  if (is('i', 4)) return convert<int32_t, Value>(items, out);
  if (is('u', 8)) return convert<uint64_t, Value>(items, out);
  if (is('i', 8)) return convert<int64_t, Value>(items, out);
  if (is('f', 2)) return convert<Half, Value>(items, out);
  if (is('f', 4)) return convert<float, Value>(items, out);
  return convert<double, Value>(items, out);
}

}  // namespace

std::string ItemType::name() const { return fmt::format("{}{}{}", size == 1 ? '|' : '<', kind, size); }

void convert_items(ItemType type, std::span<const std::byte> items, DType dtype, std::byte* out) {
  switch (dtype) {
    case DType::kUInt8:
      return convert_to<uint8_t>(type, items, out);
    case DType::kBool:
      return convert_to<bool>(type, items, out);
    case DType::kInt64:
      return convert_to<int64_t>(type, items, out);
    case DType::kFloat32:
      return convert_to<float>(type, items, out);
  }
}

ZarrArray::ZarrArray(std::string folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {
  const std::string place = folder_ + "/.zarray";
  const Json json = read_json(place);
  if (get<int64_t>(json, "zarr_format", place) != 2)
    throw cxxrun::DataError("{}: zarr_format is not 2; save the dataset in zarr format 2", place);
  shape_ = get_sizes(json, "shape", kLargestArray, place);
  chunks_ = get_sizes(json, "chunks", kLargestChunk, place);
  type_ = get_type(json, place);
  if (shape_.size() != chunks_.size())
    throw cxxrun::DataError("{}: {} numbers in 'shape', but {} in 'chunks'", place, shape_.size(), chunks_.size());
  int64_t chunk_items = 1;
  for (size_t axis = 0; axis < shape_.size(); ++axis) {
    if (axis > 0) row_items_ *= shape_[axis];
    chunk_items *= chunks_[axis];
  }
  chunk_bytes_ = static_cast<size_t>(chunk_items) * type_.size;
  if (row_items_ > kLargestRow || chunk_bytes_ > static_cast<size_t>(kLargestChunk) ||
      row_bytes() * static_cast<size_t>(std::min(rows(), chunks_[0])) > size_t{2} * kLargestChunk) {
    throw cxxrun::DataError("{}: rows of {} values in chunks of {} bytes are more than can be read; rechunk the array",
                            place, row_items_, chunk_bytes_);
  }
  if (get<std::string>(json, "order", place) != "C")
    throw cxxrun::DataError("{}: order is not 'C'; write the array again in C order", place);
  if (const auto filters = json.find("filters"); filters != json.end() && !filters->empty())
    throw cxxrun::DataError("{}: filters are not supported; write the array again without", place);
  if (const auto separator = json.find("dimension_separator"); separator != json.end()) {
    if (*separator != "." && *separator != "/")
      throw cxxrun::DataError("{}: dimension_separator must be '.' or '/'", place);
    separator_ = separator->get<std::string>()[0];
  }
  const auto compressor = json.find("compressor");
  codec_ = ZarrCodec(compressor == json.end() ? Json() : *compressor, place);
}

int64_t ZarrArray::rows_of_block(int64_t block) const { return std::min(chunks_[0], rows() - block * chunks_[0]); }

std::string ZarrArray::chunk_path(std::span<const int64_t> index) const {
  return fmt::format("{}/{}", folder_, fmt::join(index, std::string(1, separator_)));
}

// Calls use(chunk's number along each axis) for the chunks of a block, in row-major order.
template <class Use>
void ZarrArray::for_chunks(int64_t block, Use use) const {
  std::vector<int64_t> index(shape_.size(), 0);
  index[0] = block;
  for (;;) {
    use(index);
    size_t axis = shape_.size() - 1;
    while (axis > 0 && (index[axis] + 1) * chunks_[axis] >= shape_[axis]) index[axis--] = 0;
    if (axis == 0) return;
    ++index[axis];
  }
}

void ZarrArray::check_block(int64_t block) const {
  for_chunks(block, [&](std::span<const int64_t> index) {
    const std::string path = chunk_path(index);
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(path, error);
    std::ifstream file(path, std::ios::binary);
    if (error || !file) {
      throw cxxrun::DataError(
          "{}: this chunk of '{}' is missing; the dataset is incomplete, copy it again (or, where the writer left out "
          "chunks of fill values, write them too: write_empty_chunks=True)",
          path, name_);
    }
    char header[ZarrCodec::kHeaderBytes];
    file.read(header, sizeof header);
    codec_.check(std::as_bytes(std::span(header, static_cast<size_t>(file.gcount()))), size, chunk_bytes_,
                 fmt::format("{}: chunk of '{}'", path, name_));
  });
}

std::string ZarrArray::read_chunk_file(const std::string& path) const {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw cxxrun::DataError("{}: this chunk of '{}' cannot be read: {}", path, name_, error.message());
  if (size > chunk_bytes_ + chunk_bytes_ / 8 + 1024) {
    throw cxxrun::DataError("{}: {} bytes are too many for a chunk of '{}'; the file is damaged, copy it again", path,
                            size, name_);
  }
  return cxxrun::read_file(path);
}

std::vector<std::byte> ZarrArray::read_block(int64_t block) const {
  const int64_t block_rows = rows_of_block(block);
  std::vector<std::byte> result, chunk;
  for_chunks(block, [&](std::span<const int64_t> index) {
    const std::string path = chunk_path(index);
    const std::string stored = read_chunk_file(path);
    const std::string place = fmt::format("{}: chunk of '{}'", path, name_);
    codec_.check(std::as_bytes(std::span(stored)), stored.size(), chunk_bytes_, place);  // before memory is taken
    chunk.resize(chunk_bytes_);
    result.resize(static_cast<size_t>(block_rows) * row_bytes());
    codec_.decode(std::as_bytes(std::span(stored)), chunk, place);
    if (whole_rows()) {
      chunk.resize(result.size());
      return chunk.swap(result);
    }
    // Chunks are stored whole, also where they reach beyond the array: copy the part inside, one run of the last axis at a time.
    const size_t last = shape_.size() - 1;
    std::vector<int64_t> inside(shape_.size()), at(shape_.size(), 0);
    for (size_t axis = 0; axis < shape_.size(); ++axis)
      inside[axis] = std::min(chunks_[axis], shape_[axis] - index[axis] * chunks_[axis]);
    const size_t run = static_cast<size_t>(last == 0 ? 1 : inside[last]) * type_.size;
    for (bool more = true; more;) {
      int64_t from = 0, to = 0;
      for (size_t axis = 0; axis < shape_.size(); ++axis) {
        from = from * chunks_[axis] + at[axis];
        to = to * (axis == 0 ? block_rows : shape_[axis]) + at[axis] + (axis == 0 ? 0 : index[axis] * chunks_[axis]);
      }
      std::memcpy(result.data() + static_cast<size_t>(to) * type_.size,
                  chunk.data() + static_cast<size_t>(from) * type_.size, run);
      size_t axis = last == 0 ? 1 : last;
      more = false;
      while (!more && axis-- > 0) {
        more = ++at[axis] < inside[axis];
        if (!more) at[axis] = 0;
      }
    }
  });
  return result;
}

bool ZarrArray::whole_rows() const { return std::equal(shape_.begin() + 1, shape_.end(), chunks_.begin() + 1); }

ChunkFile ZarrArray::open_block(int64_t block) const {
  std::vector<int64_t> index(shape_.size(), 0);
  index[0] = block;
  const std::string path = chunk_path(index);
  return {path, codec_, chunk_bytes_, fmt::format("{}: chunk of '{}'", path, name_)};
}

}  // namespace vla::data
