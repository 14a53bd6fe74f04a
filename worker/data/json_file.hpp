// JSON and JSON-lines files as Python writes them (NaN and Infinity are accepted and read as null), and typed access to their
// values. Throws DataError naming file, place, key and value.
#pragma once

#include <functional>
#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "common/error.hpp"
#include "worker/data/dataset.hpp"

namespace vla::data {

nlohmann::ordered_json read_json(const std::string& path);

// Calls use(object, "FILE: line 3") for each line that is not blank, in order; the file is never in memory as a whole.
void read_json_lines(const std::string& path,
                     const std::function<void(const nlohmann::ordered_json& object, const std::string& place)>& use);

template <class Value>
Value get(const nlohmann::ordered_json& object, const char* key, const std::string& place) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) throw cxxrun::DataError("{}: key '{}' is missing", place, key);
  const bool fits = std::is_same_v<Value, std::string> ? found->is_string()
                    : std::is_same_v<Value, double>    ? found->is_number()
                                                       : found->is_number_integer();
  if (!fits)
    throw cxxrun::DataError("{}: key '{}' has the value {}, expected {}", place, key, found->dump().substr(0, 80),
                            std::is_same_v<Value, std::string> ? "text" : "a number");
  return found->get<Value>();
}

// {feature: {statistic: nested lists of numbers}}; the first entries of the lists tell the shape, all others must agree.
DatasetStats to_stats(const nlohmann::ordered_json& json, const std::string& place);

}  // namespace vla::data
