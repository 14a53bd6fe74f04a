#include "worker/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"

namespace vla {
namespace {

using cxxrun::Error;
using nlohmann::json;

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the Python library's limit
constexpr size_t kMaxDimensions = 64;

struct DTypeRow {
  const char* name;
  at::ScalarType type;
};

// In the order in which the Python library stores them: wide types first keeps every tensor aligned.
constexpr DTypeRow kDTypes[] = {
    {"I64", at::kLong}, {"F64", at::kDouble}, {"F32", at::kFloat}, {"I32", at::kInt}, {"BF16", at::kBFloat16},
    {"F16", at::kHalf}, {"I16", at::kShort},  {"I8", at::kChar},   {"U8", at::kByte}, {"BOOL", at::kBool},
};

struct Entry {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // in the file
};

class File {
 public:
  explicit File(const std::filesystem::path& path)
      : path_(path.string()), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (!fd_ || ::fstat(fd_.get(), &status) != 0) throw cxxrun::errno_error("cannot open " + path_);
    if (!S_ISREG(status.st_mode)) throw Error("{} is not a file", path_);
    size_ = status.st_size;
  }

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

  void read(void* destination, int64_t begin, int64_t end, const std::string& what) const {
    auto* out = static_cast<char*>(destination);
    for (int64_t at = begin; at < end;) {
      const ssize_t count = ::pread(fd_.get(), out, static_cast<size_t>(end - at), at);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw cxxrun::errno_error(fmt::format("cannot read {} of {} at byte {}", what, path_, at));
      if (count == 0)
        throw Error("{} is truncated: {} should be at bytes [{}, {}) but the file ends at {}", path_, what, begin, end,
                    at);
      at += count;
      out += count;
    }
  }

 private:
  std::string path_;
  cxxrun::UniqueFd fd_;
  int64_t size_ = 0;
};

// What a header may contain: an object of objects, whose only nesting are the two lists of a tensor. Anything deeper is
// refused while parsing, before it costs memory; so are names given twice, of which JSON would keep one silently.
json parse_header(const std::string& text, const std::string& path) {
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
int64_t byte_size(const Entry& entry, const std::string& where) {
  auto elements = static_cast<int64_t>(c10::elementSize(entry.type));
  bool empty = false;
  for (const int64_t dim : entry.shape) {
    empty = empty || dim == 0;
    if (__builtin_mul_overflow(elements, std::max<int64_t>(dim, 1), &elements)) {
      throw Error("{}: shape [{}] is too large", where, fmt::join(entry.shape, ", "));
    }
  }
  return empty ? 0 : elements;
}

Entry parse_entry(const std::string& name, const json& value, int64_t data_begin, const std::string& path) {
  const std::string where = fmt::format("{}: tensor '{}'", path, name);
  Entry entry{.name = name, .shape = {}};
  const json& dtype = member(value, "dtype", where);
  const auto row =
      std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DTypeRow& r) { return dtype == r.name; });
  if (row == std::end(kDTypes)) throw Error("{}: dtype {} is not supported", where, dtype.dump());
  entry.type = row->type;
  const json& shape = member(value, "shape", where);
  if (!shape.is_array() || shape.size() > kMaxDimensions)
    throw Error("{}: shape is not a list of at most {} sizes", where, kMaxDimensions);
  for (const json& dim : shape) entry.shape.push_back(non_negative(dim, where + ": shape"));
  const json& offsets = member(value, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2) throw Error("{}: data_offsets is not a list of two offsets", where);
  const int64_t begin = non_negative(offsets[0], where + ": data_offsets");
  const int64_t end = non_negative(offsets[1], where + ": data_offsets");
  const int64_t bytes = byte_size(entry, where);
  if (end < begin || end - begin != bytes) {
    throw Error("{}: data_offsets [{}, {}] do not span the {} bytes of {} [{}]", where, begin, end, bytes, row->name,
                fmt::join(entry.shape, ", "));
  }
  if (end > INT64_MAX - data_begin) throw Error("{}: data_offsets [{}, {}] are too large", where, begin, end);
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

// Requires the tensors to cover the data without overlap or gap, so that nothing is read twice and nothing hides in a
// file.
std::vector<Entry> parse_entries(const File& file) {
  uint64_t header_size = 0;
  file.read(&header_size, 0, sizeof header_size, "the header's length");
  if (header_size > static_cast<uint64_t>(kMaxHeaderBytes)) {
    throw Error("{}: the header's length {} (at byte 0) is above {}; not a safetensors file?", file.path(), header_size,
                kMaxHeaderBytes);
  }
  const int64_t data_begin = static_cast<int64_t>(header_size) + 8;
  if (data_begin > file.size()) {
    throw Error("{} is truncated: the header should be at bytes [8, {}) but the file ends at {}", file.path(),
                data_begin, file.size());
  }
  std::string text(header_size, '\0');
  file.read(text.data(), 8, data_begin, "the header");

  const json header = parse_header(text, file.path());
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") entries.push_back(parse_entry(name, value, data_begin, file.path()));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  int64_t expected = data_begin;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      throw Error("{}: tensor '{}' starts at byte {} but the one before it ends at {}", file.path(), entry.name,
                  entry.begin, expected);
    }
    if (entry.end > file.size()) {
      throw Error("{} is truncated: tensor '{}' should be at bytes [{}, {}) but the file ends at {}", file.path(),
                  entry.name, entry.begin, entry.end, file.size());
    }
    expected = entry.end;
  }
  if (expected != file.size()) {
    throw Error("{}: {} bytes after the last tensor, from byte {} on, belong to none", file.path(),
                file.size() - expected, expected);
  }
  return entries;
}

}  // namespace

TensorMap load_safetensors(const std::filesystem::path& path) {
  const File file(path);
  TensorMap tensors;
  for (const Entry& entry : parse_entries(file)) {
    // A bool that is neither 0 nor 1 is undefined behaviour: read the bytes as such, then convert.
    at::Tensor tensor = at::empty(entry.shape, entry.type == at::kBool ? at::kByte : entry.type);
    file.read(tensor.data_ptr(), entry.begin, entry.end, fmt::format("tensor '{}'", entry.name));
    tensors.emplace(entry.name, tensor.to(entry.type));
  }
  return tensors;
}

void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const TextMap& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<at::Tensor> data;
  int64_t offset = 0;
  for (const DTypeRow& row : kDTypes) {
    for (const auto& [name, tensor] : tensors) {
      if (tensor.scalar_type() != row.type) continue;
      const auto end = offset + static_cast<int64_t>(tensor.nbytes());
      header[name] = {{"dtype", row.name}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
      data.push_back(tensor);
      offset = end;
    }
  }
  if (data.size() != tensors.size()) {
    for (const auto& [name, tensor] : tensors) {
      if (!header.contains(name))
        throw Error("{}: tensor '{}' has dtype {}, which cannot be stored", path.string(), name,
                    c10::toString(tensor.scalar_type()));
    }
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t header_size = text.size();

  cxxrun::AtomicFile file(path);
  file.write(std::as_bytes(std::span(&header_size, 1)));
  file.write(text);
  for (const at::Tensor& tensor : data) {
    const at::Tensor host = tensor.detach().cpu().contiguous();
    file.write({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
  file.commit();
}

void copy_by_name(const TensorMap& stored, const TensorMap& own, const std::string& what) {
  std::vector<std::string> problems;
  for (const auto& [name, tensor] : own) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      problems.push_back(name + " is missing");
    } else if (found->second.sizes() != tensor.sizes()) {
      problems.push_back(fmt::format("{} has shape [{}], not [{}]", name, fmt::join(found->second.sizes(), ", "),
                                     fmt::join(tensor.sizes(), ", ")));
    }
  }
  for (const auto& [name, tensor] : stored) {
    if (!own.contains(name)) problems.push_back(name + " is unknown");
  }
  if (!problems.empty()) throw Error("{}: {}", what, fmt::join(problems, "; "));
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) tensor.copy_(stored.at(name));
}

}  // namespace vla
