#include "worker/checkpoint/json_file.hpp"

#include "common/atomic_file.hpp"
#include "common/error.hpp"

namespace vla {
namespace {

constexpr uintmax_t kMaxJsonBytes = 64 << 20;
constexpr int kMaxJsonDepth = 16;  // writing a value into a message takes stack by its depth

}  // namespace

nlohmann::ordered_json read_json_file(const std::filesystem::path& path) {
  std::error_code failed;
  const uintmax_t size = std::filesystem::file_size(path, failed);
  if (failed) throw cxxrun::Error("cannot read {}: {}", path.string(), failed.message());
  if (size > kMaxJsonBytes) throw cxxrun::Error("{} has {} bytes, more than any JSON file of a checkpoint", path.string(), size);
  const auto check = [&](int depth, nlohmann::ordered_json::parse_event_t, nlohmann::ordered_json&) {
    if (depth > kMaxJsonDepth) throw cxxrun::Error("{} is nested too deeply", path.string());
    return true;
  };
  try {
    return nlohmann::ordered_json::parse(cxxrun::read_file(path), check);
  } catch (const nlohmann::ordered_json::exception& e) {
    throw cxxrun::Error("{} is not valid: {}", path.string(), e.what());
  }
}

nlohmann::ordered_json read_json_object(const std::filesystem::path& path) {
  nlohmann::ordered_json object = read_json_file(path);
  if (!object.is_object()) throw cxxrun::Error("{} is not a JSON object", path.string());
  return object;
}

nlohmann::ordered_json read_json_list(const std::filesystem::path& path) {
  nlohmann::ordered_json list = read_json_file(path);
  if (!list.is_array()) throw cxxrun::Error("{} is not a JSON list", path.string());
  return list;
}

}  // namespace vla
