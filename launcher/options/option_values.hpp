// The typed values of the options: command line over PET_* variables over defaults, each by Boost.Program_options from the
// one table in option_rows. Knows no meaning beyond an option's kind. Throws UsageError naming the option or the variable.
#pragma once

#include <optional>
#include <string>

#include <boost/program_options.hpp>

#include "launcher/options/argument_splitter.hpp"
#include "launcher/options/options.hpp"

namespace cxxrun {

boost::program_options::options_description option_descriptions();
boost::program_options::variables_map read_option_values(const SplitArguments& split, const Environment& environment);

// `source` is what the message blames: "--nnodes", "PET_MAX_RESTARTS".
int required_int(const std::string& text, const std::string& source);

// "a,b"; ",," is a comma within an item.
std::vector<std::string> split_list(const std::string& text);

}  // namespace cxxrun
