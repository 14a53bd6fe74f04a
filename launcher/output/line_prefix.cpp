#include "launcher/output/line_prefix.hpp"

#include <unistd.h>

#include <fmt/format.h>

#include "launcher/template_text.hpp"

namespace cxxrun {
namespace {

std::string short_host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  const std::string full = name;
  return full.substr(0, full.find('.'));
}

}  // namespace

std::string line_prefix(std::string_view text, const std::string& role, int rank, int local_rank) {
  return safe_substitute(text, [&](std::string_view name) -> std::optional<std::string> {
    if (name == "role_name") return role;
    if (name == "rank") return std::to_string(rank);
    if (name == "local_rank") return std::to_string(local_rank);
    if (name == "hostname") return short_host_name();
    return std::nullopt;
  });
}

std::string coloured(const std::string& prefix, int rank) {
  constexpr int kPalette[] = {36, 33, 32, 35, 34, 31};  // cyan, yellow, green, magenta, blue, red
  return fmt::format("\x1b[2;{}m{}\x1b[0m", kPalette[rank % 6], prefix);
}

}  // namespace cxxrun
