// Reads a YAML file of options into a flat list of settings with dotted names and file:line, strictly: one document, mappings
// of scalars and lists of scalars, no key twice. A list's item that is a flat mapping becomes the text "key=value;key=value". Safe on hostile input: size, depth and the expansion of aliases are bounded.
// Throws UsageError naming file, line and key.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/option_parse.hpp"

namespace cxxrun {

// Paths in the file are relative to its folder.
std::vector<Setting> read_yaml_settings(const std::filesystem::path& path);

// `name` stands for the file in messages.
std::vector<Setting> parse_yaml_settings(const std::string& text, std::string_view name,
                                         const std::filesystem::path& directory = {});

// "[1, 2]" -> {"1", "2"}. `source` is named in errors.
std::vector<std::string> parse_yaml_list(const std::string& text, std::string_view source);

}  // namespace cxxrun
