// The arguments of a verb: positional ones and options in any order.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/option_parse.hpp"

namespace vla::data {

struct VerbArguments {
  std::vector<std::string> positionals;
  std::vector<cxxrun::Setting> settings;  // not applied yet
  bool wants_help = false;
};
VerbArguments split_arguments(std::span<const std::string> arguments, cxxrun::OptionTable& table);

// Applies the settings and returns the only positional argument; empty when it printed `help` and the options instead.
std::string parse_dataset_arguments(std::span<const std::string> arguments, cxxrun::OptionTable& table,
                                    std::string_view help, std::ostream& out);

// The only positional argument. Throws UsageError if there is none or more.
const std::string& only_dataset(const VerbArguments& arguments);

}  // namespace vla::data
