// The parts of parse_options: each reads its group of values into the options, checked. Throws UsageError.
#pragma once

#include <boost/program_options.hpp>

#include "launcher/options/options.hpp"

namespace cxxrun {

// Nodes, back end, addresses, ports and the job's name.
void read_meeting_options(LauncherOptions& options, const boost::program_options::variables_map& values,
                          const Environment& environment);

// Logs, prefixes and filters.
void read_output_options(LauncherOptions& options, const boost::program_options::variables_map& values,
                         const Environment& environment);

// The values with accelerate's spellings turned into torchrun's; what has no counterpart goes to the ranks' environment.
void read_accelerate_options(LauncherOptions& options, boost::program_options::variables_map& values);

}  // namespace cxxrun
