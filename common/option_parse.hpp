// From what the user wrote to typed, checked options. A Setting is a value with the place it was written at; a YAML file
// (yaml_config.hpp) and a command line become lists of them, and applying lists in order of precedence fills the structs
// behind an OptionTable. Nothing is guessed: an unknown name or a value of the wrong type or range is a UsageError that names
// place, key, value and what is expected.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/option_table.hpp"

namespace cxxrun {

struct Setting {
  enum class Kind { kScalar, kList, kNull, kFlag };  // kFlag: "--name" without a value

  std::string name;  // dotted
  Kind kind = Kind::kScalar;
  std::vector<std::string> items = {};  // kScalar and kFlag have one
  std::string source = {};  // "configs/x.yaml:12", "command line", "environment variable STEPS"
  std::filesystem::path directory = {};  // where relative paths start; empty = the working directory

  const std::string& text() const { return items.front(); }  // Requires: kScalar or kFlag
};

// '-' and '_' are the same in names.
std::string canonical_name(std::string_view name);

// "--a.b=c", "--a.b c", "a.b=c", "+a.b=c" and the bare "--flag". `is_flag` says whether a (canonical) name is a boolean: those
// take the next argument only if it is a boolean word; any other name takes it unless it begins with "--".
std::vector<Setting> parse_command_line(std::span<const std::string> arguments,
                                        const std::function<bool(std::string_view)>& is_flag);

// true|false, yes|no, on|off, 1|0 in any case; throws UsageError naming `setting`.
bool parse_bool(const Setting& setting);

// Sets the option that `setting` names. `more_names` (spellings the caller knows besides the table's) are candidates for
// "did you mean".
void apply_setting(OptionTable& table, const Setting& setting, const std::vector<std::string_view>& more_names = {});

// "~/data" in the home folder, for paths that no shell has seen: in files, and behind the = of an option. Others as they are.
std::filesystem::path expand_home(const std::string& path);

}  // namespace cxxrun
