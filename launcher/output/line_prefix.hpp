// The text before each line of a rank: a template and its colour. Pure, except for asking the system's host name.
#pragma once

#include <string>
#include <string_view>

namespace cxxrun {

// ${role_name}, ${rank}, ${local_rank} and ${hostname} (up to its first dot).
std::string line_prefix(std::string_view text, const std::string& role, int rank, int local_rank);

// Dim, in a colour that the rank keeps.
std::string coloured(const std::string& prefix, int rank);

}  // namespace cxxrun
