// Brings a command line to canonical form by torchrun's (argparse's) rules: options end at the first positional, which is
// the program; unambiguous prefixes of torchrun's long options are accepted, the spellings with dashes and with underscores
// being different candidates; exactly one "--" is dropped. Does not look at values. Pure; throws UsageError.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/options/option_rows.hpp"

namespace cxxrun {

struct SplitArguments {
  std::vector<std::pair<const OptionSpec*, std::string>> options;  // in order; the value of a flag is "1"
  std::string program;  // "" when there is none
  std::vector<std::string> program_args;  // byte for byte
};

SplitArguments split_arguments(const std::vector<std::string>& args);

}  // namespace cxxrun
