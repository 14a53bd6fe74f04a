#include "worker/checkpoint/safetensors.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/on_all_cores.hpp"
#include "worker/checkpoint/safetensors_header.hpp"

namespace vla {
namespace {

using cxxrun::Error;

struct DTypeRow {
  const char* name;
  at::ScalarType type;
};

// In the order in which the Python library stores them: wide types first keeps every tensor aligned.
constexpr DTypeRow kDTypes[] = {
    {"I64", at::kLong}, {"F64", at::kDouble}, {"F32", at::kFloat}, {"I32", at::kInt}, {"BF16", at::kBFloat16},
    {"F16", at::kHalf}, {"I16", at::kShort},  {"I8", at::kChar},   {"U8", at::kByte}, {"BOOL", at::kBool},
};

constexpr size_t kMostNamed = 6;  // tensors of a kind in a message
constexpr size_t kBytesPerThread = 16 << 20;

}  // namespace

TensorMap load_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  const std::vector<SafetensorsEntry>& entries = file.entries();
  std::vector<at::Tensor> values(entries.size());
  const auto read = [&](size_t i) {
    const SafetensorsEntry& entry = entries[i];
    const auto type = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DTypeRow& row) { return entry.dtype == row.name; })->type;
    // A bool that is neither 0 nor 1 is undefined behaviour: read the bytes as such, then convert.
    const at::Tensor bytes = at::empty(entry.shape, type == at::kBool ? at::kByte : type);
    file.read(entry, bytes.data_ptr());
    values[i] = bytes.to(type);
  };
  const size_t size = entries.empty() ? 0 : static_cast<size_t>(entries.back().end);
  cxxrun::on_all_cores(entries.size(), read, size / kBytesPerThread);
  TensorMap tensors;
  for (size_t i = 0; i < entries.size(); ++i) tensors.emplace(entries[i].name, values[i]);
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
  std::vector<std::string> missing, unknown, misshaped, mistyped;
  for (const auto& [name, tensor] : own) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      missing.push_back(name);
    } else if (found->second.sizes() != tensor.sizes()) {
      misshaped.push_back(fmt::format("{} has shape [{}], not [{}]", name, fmt::join(found->second.sizes(), ", "),
                                      fmt::join(tensor.sizes(), ", ")));
    } else if (found->second.is_floating_point() != tensor.is_floating_point()) {
      mistyped.push_back(fmt::format("{} has dtype {}, not {}", name, c10::toString(found->second.scalar_type()), c10::toString(tensor.scalar_type())));
    }
  }
  for (const auto& [name, tensor] : stored) {
    if (!own.contains(name)) unknown.push_back(name);
  }
  std::vector<std::string> problems;
  for (const auto& [list, kind] : {std::pair(&missing, "missing"), {&misshaped, "of another shape"}, {&mistyped, "of another kind"}, {&unknown, "unknown"}}) {
    const bool is_said = list == &misshaped || list == &mistyped;
    if (list->size() == 1) problems.push_back(is_said ? list->front() : fmt::format("{} is {}", list->front(), kind));
    if (list->size() <= 1) continue;
    const size_t named = std::min(list->size(), kMostNamed);
    problems.push_back(fmt::format("{} tensors are {}: {}{}", list->size(), kind, fmt::join(list->begin(), list->begin() + static_cast<std::ptrdiff_t>(named), ", "),
                                   named < list->size() ? ", …" : ""));
  }
  if (!problems.empty()) throw Error("{} ({} tensors, {} wanted): {}", what, stored.size(), own.size(), fmt::join(problems, "; "));
  const at::NoGradGuard no_grad;
  // To the device in the type that is stored, often the shorter one, and converted there.
  for (const auto& [name, tensor] : own) tensor.copy_(stored.at(name).to(tensor.device()));
}

}  // namespace vla
