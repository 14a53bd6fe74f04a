#include "worker/data/tokenizer/json_node.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "common/atomic_file.hpp"
#include "common/error.hpp"

namespace vla::data {
namespace {

using Json = nlohmann::json;

constexpr uintmax_t kLargestFile = 128U << 20;
constexpr int kDeepest = 16;  // readers of nested sequences and dump() take stack by the depth

const Json kNull;

}  // namespace

nlohmann::json read_large_json(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw cxxrun::DataError("cannot open {}: {}", path, error.message());
  if (size > kLargestFile) throw cxxrun::DataError("{}: {} bytes is more than such a file can have", path, size);
  const auto check = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) throw cxxrun::DataError("{}: nested more than {} levels deep", path, kDeepest);
    return true;
  };
  try {
    return Json::parse(cxxrun::read_file(path), check);
  } catch (const Json::exception& problem) {
    throw cxxrun::DataError("{}: not valid JSON ({}); the file is damaged, copy it again", path, problem.what());
  }
}

void JsonNode::allow_keys(std::initializer_list<std::string_view> known) const {
  if (!value_->is_object()) refuse("an object");
  for (const auto& [key, value] : value_->items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) (*this)[key.c_str()].refuse("no such key");
  }
}

JsonNode JsonNode::operator[](const char* key) const {
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(key);
  return {found == value_->end() ? kNull : *found, place_ + (place_.ends_with(": ") ? "" : ".") + key};
}

std::string JsonNode::type() const { return text_or("type", ""); }

std::string JsonNode::text() const {
  if (!value_->is_string()) refuse("text");
  return value_->get<std::string>();
}

std::string JsonNode::text_or(const char* key, std::string fallback) const {
  const JsonNode node = (*this)[key];
  return node.is_null() ? std::move(fallback) : node.text();
}

bool JsonNode::flag(const char* key) const {
  const JsonNode node = (*this)[key];
  if (!node.value_->is_boolean()) node.refuse("true or false");
  return node.value_->get<bool>();
}

bool JsonNode::flag_or(const char* key, bool fallback) const { return (*this)[key].is_null() ? fallback : flag(key); }

int64_t JsonNode::id() const {
  const bool fits = value_->is_number_unsigned() && value_->get<uint64_t>() <= std::numeric_limits<int32_t>::max();
  if (!fits) refuse("a token's number");
  return value_->get<int64_t>();
}

std::vector<JsonNode> JsonNode::list() const {
  if (!value_->is_array()) refuse("a list");
  std::vector<JsonNode> nodes;
  nodes.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) nodes.emplace_back((*value_)[i], fmt::format("{}[{}]", place_, i));
  return nodes;
}

void JsonNode::refuse(std::string_view expected) const {
  std::string shown = value_->dump(-1, ' ', true).substr(0, 120);
  throw cxxrun::DataError("{}: the value {} is not supported, expected {}", place_, shown, expected);
}

}  // namespace vla::data
