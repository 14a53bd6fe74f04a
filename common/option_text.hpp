// The text that comes from an OptionTable: --help and the resolved configuration.
#pragma once

#include <string>

#include "common/option_table.hpp"

namespace cxxrun {

// Every option with type, meaning, unit, range, choices and current value (the default, if nothing was applied), wrapped to
// 100 columns.
std::string help_text(const OptionTable& table);

// A configuration that reads back to the same values, transient options left out. A comment says where a value came from
// unless it is the default.
std::string dump_yaml(const OptionTable& table);

}  // namespace cxxrun
