#include "launcher/error_file.hpp"

#include <fstream>

#include <nlohmann/json.hpp>

namespace cxxrun {

std::string read_error_file(const std::string& path) {
  constexpr size_t kLimit = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  std::string text(kLimit, '\0');
  file.read(text.data(), kLimit);
  text.resize(static_cast<size_t>(file.gcount()));
  const auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return "";
  auto message = document.value("message", nlohmann::json());
  if (message.is_object()) message = message.value("message", nlohmann::json());
  return message.is_string() ? message.get<std::string>() : "";
}

}  // namespace cxxrun
