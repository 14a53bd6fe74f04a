#include "launcher/line_prefix.hpp"

#include <unistd.h>

#include <fmt/format.h>

namespace cxxrun {
namespace {

size_t name_length(std::string_view text) {
  size_t length = 0;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!letter && !(length > 0 && c >= '0' && c <= '9')) break;
    ++length;
  }
  return length;
}

std::string short_host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  const std::string full = name;
  return full.substr(0, full.find('.'));
}

}  // namespace

std::string safe_substitute(std::string_view text,
                            const std::function<std::optional<std::string>(std::string_view)>& value) {
  std::string result;
  while (!text.empty()) {
    size_t length = 1;  // of what is replaced
    std::optional<std::string> replacement;
    if (text.starts_with("$$")) {
      length = 2;
      replacement = "$";
    } else if (text[0] == '$') {
      const bool braced = text.starts_with("${");
      const size_t name = name_length(text.substr(braced ? 2 : 1));
      const bool closed = !braced || text.substr(2 + name).starts_with('}');
      if (name > 0 && closed) {
        length = name + (braced ? 3 : 1);
        replacement = value(text.substr(braced ? 2 : 1, name));
      }
    }
    result += replacement ? *replacement : text.substr(0, length);
    text.remove_prefix(length);
  }
  return result;
}

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
