// Whether a name means the machine we run on.
#pragma once

#include <string>

namespace cxxrun {

std::string host_name();

// `host`: a name or an address. One that cannot be resolved is not ours.
bool is_this_machine(const std::string& host);

}  // namespace cxxrun
