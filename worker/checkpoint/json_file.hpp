// JSON files of checkpoints, which are untrusted: size and depth are bounded before anything is built from them. Error names the file.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace vla {

// Keys keep their order.
nlohmann::ordered_json read_json_file(const std::filesystem::path& path);
// An object at the top.
nlohmann::ordered_json read_json_object(const std::filesystem::path& path);
// A list at the top.
nlohmann::ordered_json read_json_list(const std::filesystem::path& path);

}  // namespace vla
