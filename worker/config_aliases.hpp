// Other programs' spellings of our options (LeRobot, accelerate, Hydra and YAML recipes): the one table of them. An alias
// renames a setting, translates its value, or drops it where it means nothing here. What asks for a feature that is not there
// and would change the result is a UsageError.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/option_parse.hpp"

namespace vla {

struct ConfigAlias {
  const char* alias;
  const char* canonical;  // nullptr: accepted, sets nothing
  // Our text for a given value, or a UsageError; nullptr: the value as it is. Not called for null.
  std::string (*translate)(const cxxrun::Setting& setting) = nullptr;
  const char* note = nullptr;  // shown once when the alias is used
  bool is_flag = false;  // may stand without a value on the command line
};
std::span<const ConfigAlias> config_aliases();

// Environment variables that are read, each with the option or alias it stands for.
struct EnvironmentAlias {
  const char* variable;
  const char* name;
};
std::span<const EnvironmentAlias> environment_aliases();

// Settings of one source under canonical names. Notes of the aliases used are appended to `notes`.
std::vector<cxxrun::Setting> resolve_aliases(const std::vector<cxxrun::Setting>& settings,
                                             std::vector<std::string>& notes);

}  // namespace vla
