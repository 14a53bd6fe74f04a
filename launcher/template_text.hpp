// The placeholders that torchrun allows in arguments and line prefixes. Pure.
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

}  // namespace cxxrun
