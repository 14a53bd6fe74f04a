// A value of a JSON file with its place in it, so that whoever reads it can name file, key and value when refusing it. Nothing is
// ignored silently: allow_keys() refuses what its reader does not know. Throws DataError. The file's tree must outlive the nodes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace vla::data {

// Objects find their keys in logarithmic time here: a vocabulary is one object.
nlohmann::json read_large_json(const std::string& path);

class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }
  bool is_null() const { return value_->is_null(); }
  void allow_keys(std::initializer_list<std::string_view> known) const;

  JsonNode operator[](const char* key) const;  // a missing key reads as null
  std::string type() const;  // the text under "type", "" where there is none
  std::string text() const;
  std::string text_or(const char* key, std::string fallback) const;
  bool flag(const char* key) const;
  bool flag_or(const char* key, bool fallback) const;
  int64_t id() const;  // 0 .. 2^31 - 1
  std::vector<JsonNode> list() const;

  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace vla::data
