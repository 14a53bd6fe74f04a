#include "launcher/output/line_prefix.hpp"

#include <fmt/format.h>

#include "launcher/rendezvous/this_machine.hpp"
#include "launcher/template_text.hpp"

namespace cxxrun {
std::string line_prefix(std::string_view text, const std::string& role, int rank, int local_rank) {
  return safe_substitute(text, [&](std::string_view name) -> std::optional<std::string> {
    if (name == "role_name") return role;
    if (name == "rank") return std::to_string(rank);
    if (name == "local_rank") return std::to_string(local_rank);
    if (name == "hostname") return host_name().substr(0, host_name().find('.'));
    return std::nullopt;
  });
}

std::string coloured(const std::string& prefix, int rank) {
  constexpr int kPalette[] = {36, 33, 32, 35, 34, 31};  // cyan, yellow, green, magenta, blue, red
  return fmt::format("\x1b[2;{}m{}\x1b[0m", kPalette[rank % 6], prefix);
}

}  // namespace cxxrun
