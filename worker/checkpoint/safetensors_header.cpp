#include "worker/checkpoint/safetensors_header.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/error.hpp"

namespace vla {
namespace {

using cxxrun::Error;
using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the Python library's limit
constexpr size_t kMaxDimensions = 64;

struct DTypeSize {
  const char* name;
  int64_t bytes;
};
constexpr DTypeSize kDTypeSizes[] = {
    {"I64", 8}, {"F64", 8}, {"F32", 4}, {"I32", 4}, {"BF16", 2}, {"F16", 2}, {"I16", 2}, {"I8", 1}, {"U8", 1}, {"BOOL", 1},
};

// What a header may contain: an object of objects, whose only nesting are the two lists of a tensor. Anything deeper is
// refused while parsing, before it costs memory; so are names given twice, of which JSON would keep one silently.
json parse_json(std::string_view text, const std::string& path) {
  std::set<std::string> names;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if ((event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) && depth > 2) {
      throw Error("{}: the header is nested too deeply for a safetensors file", path);
    }
    if (event == json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second) {
      throw Error("{}: the header names '{}' twice", path, parsed.get<std::string>());
    }
    return true;
  };
  try {
    json header = json::parse(text, check);
    if (!header.is_object()) throw Error("{}: the header is not a JSON object", path);
    return header;
  } catch (const json::exception& e) {
    throw Error("{}: the header (from byte 8 on) is not valid JSON: {}", path, e.what());
  }
}

int64_t non_negative(const json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    throw Error("{}: {} is not a non-negative integer", where, value.dump());
  }
  return value.get<int64_t>();
}

const json& member(const json& object, const char* key, const std::string& where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end()) throw Error("{}: '{}' is missing", where, key);
  return *found;
}

// Bytes of a tensor; refuses products that overflow, also those hidden behind a dimension of 0.
int64_t byte_size(const SafetensorsEntry& entry, int64_t element_size, const std::string& where) {
  int64_t elements = element_size;
  bool empty = false;
  for (const int64_t dim : entry.shape) {
    empty = empty || dim == 0;
    if (__builtin_mul_overflow(elements, std::max<int64_t>(dim, 1), &elements)) {
      throw Error("{}: shape [{}] is too large", where, fmt::join(entry.shape, ", "));
    }
  }
  return empty ? 0 : elements;
}

SafetensorsEntry parse_entry(const std::string& name, const json& value, int64_t data_begin, const std::string& path) {
  const std::string where = fmt::format("{}: tensor '{}'", path, name);
  SafetensorsEntry entry{.name = name, .dtype = {}, .shape = {}};
  const json& dtype = member(value, "dtype", where);
  const auto row = std::find_if(std::begin(kDTypeSizes), std::end(kDTypeSizes), [&](const DTypeSize& known) { return dtype == known.name; });
  if (row == std::end(kDTypeSizes)) throw Error("{}: dtype {} is not supported", where, dtype.dump());
  entry.dtype = row->name;
  const json& shape = member(value, "shape", where);
  if (!shape.is_array() || shape.size() > kMaxDimensions)
    throw Error("{}: shape is not a list of at most {} sizes", where, kMaxDimensions);
  for (const json& dim : shape) entry.shape.push_back(non_negative(dim, where + ": shape"));
  const json& offsets = member(value, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2) throw Error("{}: data_offsets is not a list of two offsets", where);
  const int64_t begin = non_negative(offsets[0], where + ": data_offsets");
  const int64_t end = non_negative(offsets[1], where + ": data_offsets");
  const int64_t bytes = byte_size(entry, row->bytes, where);
  if (end < begin || end - begin != bytes) {
    throw Error("{}: data_offsets [{}, {}] do not span the {} bytes of {} [{}]", where, begin, end, bytes, row->name,
                fmt::join(entry.shape, ", "));
  }
  if (end > INT64_MAX - data_begin) throw Error("{}: data_offsets [{}, {}] are too large", where, begin, end);
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

}  // namespace

// Covered without overlap or gap, nothing is read twice and nothing hides in a file.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text, int64_t file_size, const std::string& path) {
  const int64_t data_begin = static_cast<int64_t>(text.size()) + 8;
  const json header = parse_json(text, path);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") entries.push_back(parse_entry(name, value, data_begin, path));
  }
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  int64_t expected = data_begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != expected) {
      throw Error("{}: tensor '{}' starts at byte {} but the one before it ends at {}", path, entry.name, entry.begin, expected);
    }
    if (entry.end > file_size) {
      throw Error("{} is truncated: tensor '{}' should be at bytes [{}, {}) but the file ends at {}", path, entry.name,
                  entry.begin, entry.end, file_size);
    }
    expected = entry.end;
  }
  if (expected != file_size) {
    throw Error("{}: {} bytes after the last tensor, from byte {} on, belong to none", path, file_size - expected, expected);
  }
  return entries;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path.string()), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (!fd_ || ::fstat(fd_.get(), &status) != 0) throw cxxrun::errno_error("cannot open " + path_);
  if (!S_ISREG(status.st_mode)) throw Error("{} is not a file", path_);
  uint64_t header_size = 0;
  read(&header_size, 0, sizeof header_size, "the header's length");
  if (header_size > kMaxHeaderBytes) {
    throw Error("{}: the header's length {} (at byte 0) is above {}; not a safetensors file?", path_, header_size,
                kMaxHeaderBytes);
  }
  const int64_t data_begin = static_cast<int64_t>(header_size) + 8;
  if (data_begin > status.st_size) {
    throw Error("{} is truncated: the header should be at bytes [8, {}) but the file ends at {}", path_, data_begin,
                status.st_size);
  }
  std::string header(header_size, '\0');
  read(header.data(), 8, data_begin, "the header");
  entries_ = parse_safetensors_header(header, status.st_size, path_);
}

void SafetensorsFile::read(const SafetensorsEntry& entry, void* destination) const {
  read(destination, entry.begin, entry.end, fmt::format("tensor '{}'", entry.name));
}

void SafetensorsFile::read(void* destination, int64_t begin, int64_t end, const std::string& what) const {
  auto* out = static_cast<char*>(destination);
  for (int64_t at = begin; at < end;) {
    const ssize_t count = ::pread(fd_.get(), out, static_cast<size_t>(end - at), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw cxxrun::errno_error(fmt::format("cannot read {} of {} at byte {}", what, path_, at));
    if (count == 0)
      throw Error("{} is truncated: {} should be at bytes [{}, {}) but the file ends at {}", path_, what, begin, end, at);
    at += count;
    out += count;
  }
}

}  // namespace vla
