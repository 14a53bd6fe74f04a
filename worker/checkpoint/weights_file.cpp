#include "worker/checkpoint/weights_file.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/checkpoint/json_file.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::Error;
using cxxrun::UsageError;

constexpr char kWeightsName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr const char* kPickled[] = {".pth", ".pt", ".bin", ".ckpt"};

void refuse_pickled(const fs::path& file) {
  for (const char* extension : kPickled) {
    if (file.extension() != extension) continue;
    throw UsageError("{} is a pickled file, which is never read here because it can run code: convert it with "
                     "'python scripts/convert_checkpoint.py {} {}'",
                     file.string(), file.string(), fs::path(file).replace_extension(".safetensors").string());
  }
}

TensorMap read_shards(const fs::path& index) {
  const auto object = read_json_object(index);
  const auto map = object.find("weight_map");
  if (map == object.end() || !map->is_object() || map->empty()) throw Error("{}: 'weight_map' is missing", index.string());
  std::map<std::string, std::set<std::string>> names_by_file;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()) != fs::path(file.get<std::string>()).filename()) {
      throw Error("{}: '{}' is in {}, which is no file beside it", index.string(), name, file.dump());
    }
    names_by_file[file.get<std::string>()].insert(name);
  }
  TensorMap tensors;
  for (const auto& [file, names] : names_by_file) {
    const fs::path shard = index.parent_path() / file;
    TensorMap stored = load_safetensors(shard);
    for (const std::string& name : names) {
      auto tensor = stored.extract(name);
      if (!tensor) throw Error("{} has no tensor '{}', which {} says it has", shard.string(), name, index.string());
      tensors.insert(std::move(tensor));
    }
    if (!stored.empty()) throw Error("{} has a tensor '{}', which {} does not list", shard.string(), stored.begin()->first, index.string());
  }
  return tensors;
}

// "", and every prefix that ends with a dot and that all names have, longest last.
std::vector<std::string> common_prefixes(const TensorMap& tensors) {
  std::vector<std::string> prefixes{""};
  if (tensors.empty()) return prefixes;
  // Names are sorted: what the first and the last share, all share.
  const std::string &first = tensors.begin()->first, &last = tensors.rbegin()->first;
  for (size_t dot; (dot = first.find('.', prefixes.back().size())) != std::string::npos && last.starts_with(first.substr(0, dot + 1));)
    prefixes.push_back(first.substr(0, dot + 1));
  return prefixes;
}

}  // namespace

fs::path find_weights(const fs::path& path) {
  if (fs::is_regular_file(path)) {
    refuse_pickled(path);
    return path;
  }
  for (const char* below : {"", "pretrained_model", "last/pretrained_model", "checkpoints/last/pretrained_model"}) {
    for (const char* name : {kWeightsName, kIndexName}) {
      if (fs::exists(path / below / name)) return path / below / name;
    }
  }
  for (const char* name : {"pytorch_model.bin", "model.pth"}) {
    if (fs::exists(path / name)) refuse_pickled(path / name);
  }
  throw UsageError("{} holds no weights: neither {} nor {} is there or in its pretrained_model/", path.string(), kWeightsName, kIndexName);
}

TensorMap read_weights(const fs::path& path) {
  const fs::path file = find_weights(path);
  return file.extension() == ".json" ? read_shards(file) : load_safetensors(file);
}

TensorMap with_fitting_prefix(TensorMap stored, const TensorMap& own, const std::string& path) {
  const auto fitting = [&](const std::string& removed, const std::string& added) {
    return std::ranges::count_if(stored, [&](const auto& item) { return own.contains(added + item.first.substr(removed.size())); });
  };
  std::string removed, added;
  auto best = fitting("", "");
  for (const std::string& from : common_prefixes(stored)) {
    for (const std::string& to : common_prefixes(own)) {
      const auto count = fitting(from, to);
      if (count > best) std::tie(best, removed, added) = std::tuple(count, from, to);
    }
  }
  if (removed == added) return stored;
  TensorMap renamed;
  for (auto& [name, tensor] : stored) renamed[added + name.substr(removed.size())] = std::move(tensor);
  if (!removed.empty()) cxxrun::log_info("{}: '{}' is removed from the front of every name", path, removed);
  if (!added.empty()) cxxrun::log_info("{}: '{}' is put in front of every name", path, added);
  return renamed;
}

}  // namespace vla
