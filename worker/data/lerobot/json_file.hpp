// JSON files as Python writes them: NaN and Infinity are accepted and read as null. Throws DataError naming file and place.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace vla::data {

nlohmann::ordered_json read_json(const std::string& path);

}  // namespace vla::data
