#include "launcher/template_text.hpp"

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

}  // namespace cxxrun
