#include "worker/data/lerobot/parquet_file.hpp"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {
namespace {

// Where a value stands, for messages.
struct Place {
  const std::string& path;
  const std::string& column;
  int64_t first_row;

  [[noreturn]] void fail(int64_t row, const std::string& what) const {
    throw cxxrun::DataError("{}: column '{}', row {}: {}", path, column, first_row + row, what);
  }
};

template <class ArrowArray, class Value>
void convert(const arrow::Array& array, std::vector<std::byte>& out) {
  const auto& values = static_cast<const ArrowArray&>(array);
  const size_t begin = out.size();
  out.resize(begin + static_cast<size_t>(array.length()) * sizeof(Value));
  for (int64_t i = 0; i < array.length(); ++i) {
    const auto value = static_cast<Value>(values.Value(i));
    std::memcpy(out.data() + begin + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
  }
}

// Appends the values as `Value`. False when the array's type is not numeric, or has fractions where `Value` has none.
template <class Value>
bool convert_numbers(const arrow::Array& array, std::vector<std::byte>& out) {
  if (std::is_integral_v<Value> && arrow::is_floating(array.type_id())) return false;
  switch (array.type_id()) {
#define CONVERT(type)                               \
  case arrow::type##Type::type_id:                  \
    convert<arrow::type##Array, Value>(array, out); \
    return true;
    CONVERT(Boolean)
    CONVERT(Int8)
    CONVERT(Int16)
    CONVERT(Int32)
    CONVERT(Int64)
    CONVERT(UInt8)
    CONVERT(UInt16)
    CONVERT(UInt32)
    CONVERT(UInt64)
    CONVERT(Float)
    CONVERT(Double)
#undef CONVERT
    default:
      return false;
  }
}

template <class ListArray>
std::shared_ptr<arrow::Array> flatten(const ListArray& lists, int64_t size, int64_t lists_per_row, const Place& place) {
  for (int64_t i = 0; i < lists.length(); ++i) {
    if (lists.value_length(i) != size) {
      place.fail(i / lists_per_row, fmt::format("a list of {} values where meta/info.json declares {}",
                                                static_cast<int64_t>(lists.value_length(i)), size));
    }
  }
  return lists.Flatten().ValueOrDie();
}

// The entries of lists that must all have `size` of them; null when `array` holds no lists.
std::shared_ptr<arrow::Array> flatten_list(const arrow::Array& array, int64_t size, int64_t lists_per_row,
                                           const Place& place) {
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return flatten(static_cast<const arrow::ListArray&>(array), size, lists_per_row, place);
    case arrow::Type::LARGE_LIST:
      return flatten(static_cast<const arrow::LargeListArray&>(array), size, lists_per_row, place);
    case arrow::Type::FIXED_SIZE_LIST:
      return flatten(static_cast<const arrow::FixedSizeListArray&>(array), size, lists_per_row, place);
    default:
      return nullptr;
  }
}

void check_no_null(const arrow::Array& array, int64_t entries_per_row, const Place& place) {
  if (array.null_count() == 0) return;
  for (int64_t i = 0; i < array.length(); ++i) {
    if (array.IsNull(i)) place.fail(i / entries_per_row, "no value (null)");
  }
}

using Convert = bool(const arrow::Array& array, std::vector<std::byte>& out);

void append_numbers(const std::shared_ptr<arrow::Array>& rows, const std::vector<int64_t>& shape, Convert convert,
                    const Place& place, std::vector<std::byte>& out) {
  std::shared_ptr<arrow::Array> array = rows;
  int64_t per_row = 1;
  check_no_null(*array, per_row, place);
  for (const int64_t size : shape) {
    const std::shared_ptr<arrow::Array> values = flatten_list(*array, size, per_row, place);
    if (!values) break;
    array = values;
    per_row *= size;
    check_no_null(*array, per_row, place);
  }
  if (per_row != element_count(shape) || !convert(*array, out)) {
    throw cxxrun::DataError(
        "{}: column '{}' has type {}, which does not hold numbers of the shape [{}] and type that meta/info.json "
        "declares",
        place.path, place.column, rows->type()->ToString(), fmt::join(shape, ", "));
  }
}

Convert* convert_to(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return &convert_numbers<bool>;
    case DType::kInt64:
      return &convert_numbers<int64_t>;
    default:
      return &convert_numbers<float>;
  }
}

// Calls use(string_view) for every value of a column of text or bytes.
template <class Use>
void for_views(const arrow::Array& array, const Place& place, Use use) {
  check_no_null(array, 1, place);
  switch (array.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      for (int64_t i = 0; i < array.length(); ++i) use(static_cast<const arrow::BinaryArray&>(array).GetView(i));
      return;
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      for (int64_t i = 0; i < array.length(); ++i) use(static_cast<const arrow::LargeBinaryArray&>(array).GetView(i));
      return;
    default:
      throw cxxrun::DataError("{}: column '{}' has type {}, expected text or bytes", place.path, place.column,
                              array.type()->ToString());
  }
}

template <class Value>
std::vector<Value> from_bytes(const std::vector<std::byte>& bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void leaf_columns(const parquet::arrow::SchemaField& field, std::vector<int>& out) {
  if (field.is_leaf()) out.push_back(field.column_index);
  for (const auto& child : field.children) leaf_columns(child, out);
}

}  // namespace

struct ParquetFile::Impl {
  std::unique_ptr<parquet::arrow::FileReader> reader;

  const parquet::arrow::SchemaField* find(const std::string& name) const {
    for (const auto& field : reader->manifest().schema_fields) {
      if (field.field->name() == name) return &field;
    }
    return nullptr;
  }

  // Chunks of one column in a row group.
  arrow::ArrayVector chunks(const std::string& path, const std::string& column, int group) const {
    const auto* field = find(column);
    if (field == nullptr) {
      std::vector<std::string_view> known;
      for (const auto& other : reader->manifest().schema_fields) {
        if (!other.field->name().starts_with("stats/")) known.push_back(other.field->name());
      }
      throw cxxrun::DataError("{}: no column '{}' (it has: {}){}", path, column, fmt::join(known, ", "),
                              cxxrun::did_you_mean(column, known));
    }
    std::vector<int> leaves;
    leaf_columns(*field, leaves);
    std::string reason;
    try {
      const auto table = reader->ReadRowGroup(group, leaves);
      if (table.ok()) {
        const arrow::Status valid = (*table)->ValidateFull();
        if (valid.ok()) return (*table)->column(0)->chunks();
        reason = valid.ToString();
      } else {
        reason = table.status().ToString();
      }
    } catch (const std::exception& error) {
      reason = error.what();
    }
    throw cxxrun::DataError("{}: column '{}' cannot be read ({}); the file is damaged, copy it again", path, column,
                            reason);
  }
};

ParquetFile::ParquetFile(std::string path) : path_(std::move(path)), impl_(new Impl) {
  std::string reason;
  try {
    const auto file = arrow::io::ReadableFile::Open(path_);
    if (!file.ok()) throw cxxrun::DataError("cannot open {}: {}", path_, file.status().message());
    parquet::ArrowReaderProperties properties;
    properties.set_pre_buffer(false);  // reads in this thread instead of Arrow's pool
    parquet::arrow::FileReaderBuilder builder;
    arrow::Status status = builder.Open(*file);
    if (status.ok()) {
      auto reader = builder.properties(properties)->Build();
      if (reader.ok()) {
        impl_->reader = std::move(*reader);
        const auto metadata = impl_->reader->parquet_reader()->metadata();
        for (int i = 0; i < metadata->num_row_groups(); ++i)
          row_group_starts_.push_back(row_group_starts_.back() + metadata->RowGroup(i)->num_rows());
        return;
      }
      status = reader.status();
    }
    reason = status.message();
  } catch (const parquet::ParquetException& error) {
    reason = error.what();
  }
  throw cxxrun::DataError("{}: not a readable parquet file ({}); copy it again", path_, reason);
}

ParquetFile::~ParquetFile() = default;

bool ParquetFile::has_column(const std::string& name) const { return impl_->find(name) != nullptr; }

// Calls use(array, place) for the rows of `ranges`, in order. Each row group that has some is read once.
template <class Use>
void ParquetFile::for_rows(const std::string& column, std::span<const RowRange> ranges, Use use) {
  auto range = ranges.begin();
  for (size_t group = 0; group + 1 < row_group_starts_.size(); ++group) {
    const int64_t group_end = row_group_starts_[group + 1];
    while (range != ranges.end() && range->end <= row_group_starts_[group]) ++range;
    if (range == ranges.end() || range->begin >= group_end) continue;
    int64_t start = row_group_starts_[group];
    for (const auto& chunk : impl_->chunks(path_, column, static_cast<int>(group))) {
      const int64_t end = start + chunk->length();
      for (auto part = range; part != ranges.end() && part->begin < end; ++part) {
        const int64_t from = std::max(part->begin, start), to = std::min(part->end, end);
        if (from < to) use(chunk->Slice(from - start, to - from), Place{path_, column, from});
      }
      start = end;
    }
    if (start != group_end)
      throw cxxrun::DataError(
          "{}: column '{}' has {} rows up to row group {}, expected {}; the file is damaged, copy it again", path_,
          column, start, group, group_end);
  }
}

void ParquetFile::read(const std::string& column, std::span<const RowRange> ranges, NumericColumn& out) {
  for_rows(column, ranges, [&](const auto& rows, const Place& place) {
    append_numbers(rows, out.shape, convert_to(out.dtype), place, out.values);
  });
}

void ParquetFile::read(const std::string& column, std::span<const RowRange> ranges, BinaryColumn& out) {
  for_rows(column, ranges, [&](const auto& rows, const Place& place) {
    std::shared_ptr<arrow::Array> pictures = rows;
    if (rows->type_id() == arrow::Type::STRUCT) {
      check_no_null(*rows, 1, place);
      pictures = static_cast<const arrow::StructArray&>(*rows).GetFieldByName("bytes");
      if (!pictures) throw cxxrun::DataError("{}: column '{}' has no field 'bytes'", path_, column);
    }
    for_views(*pictures, place, [&](std::string_view picture) {
      const auto* data = reinterpret_cast<const std::byte*>(picture.data());
      out.bytes.insert(out.bytes.end(), data, data + picture.size());
      out.ends.push_back(out.bytes.size());
    });
  });
}

std::array<RowRange, 1> ParquetFile::all_rows() const { return {RowRange{0, row_count()}}; }

std::vector<int64_t> ParquetFile::integers(const std::string& column) {
  std::vector<std::byte> bytes;
  for_rows(column, all_rows(), [&](const auto& rows, const Place& place) {
    append_numbers(rows, {}, &convert_numbers<int64_t>, place, bytes);
  });
  return from_bytes<int64_t>(bytes);
}

std::vector<double> ParquetFile::reals(const std::string& column) {
  std::vector<std::byte> bytes;
  for_rows(column, all_rows(), [&](const auto& rows, const Place& place) {
    append_numbers(rows, {}, &convert_numbers<double>, place, bytes);
  });
  return from_bytes<double>(bytes);
}

std::vector<std::string> ParquetFile::strings(const std::string& column) {
  std::vector<std::string> values;
  for_rows(column, all_rows(), [&](const auto& rows, const Place& place) {
    for_views(*rows, place, [&](std::string_view text) { values.emplace_back(text); });
  });
  return values;
}

}  // namespace vla::data
