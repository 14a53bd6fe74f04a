// The text before each line of a rank: a template and its colour. Pure, except for asking the system's host name.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace cxxrun {

// Python's string.Template.safe_substitute: $name and ${name} become what `value` gives for the name and stay as they are
// where it gives nothing; $$ becomes $.
std::string safe_substitute(std::string_view text,
                            const std::function<std::optional<std::string>(std::string_view)>& value);

// ${role_name}, ${rank}, ${local_rank} and ${hostname} (up to its first dot).
std::string line_prefix(std::string_view text, const std::string& role, int rank, int local_rank);

// Dim, in a colour that the rank keeps.
std::string coloured(const std::string& prefix, int rank);

}  // namespace cxxrun
