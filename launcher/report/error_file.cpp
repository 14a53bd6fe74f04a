#include "launcher/report/error_file.hpp"

#include <charconv>
#include <ctime>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"

namespace cxxrun {
namespace {

using nlohmann::json;

constexpr size_t kLimit = 1 << 20;
constexpr int64_t kYear10000 = 253'402'300'800;

json parse(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return json::value_t::discarded;  // opening a FIFO would wait
  std::ifstream file(path, std::ios::binary);
  std::string text(kLimit, '\0');
  file.read(text.data(), kLimit);
  text.resize(static_cast<size_t>(file.gcount()));
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string text_of(const json& object, const char* key) {
  const auto value = object.is_object() ? object.find(key) : object.end();
  return value != object.end() && value->is_string() ? value->get<std::string>() : "";
}

// A number, or a number as text.
std::optional<int64_t> time_of(const json& object) {
  const auto value = object.is_object() ? object.find("timestamp") : object.end();
  if (value == object.end()) return std::nullopt;
  const std::string text = value->is_number_integer() ? value->dump() : text_of(object, "timestamp");
  int64_t seconds = -1;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return seconds >= 0 && seconds < kYear10000 ? std::optional(seconds) : std::nullopt;
}

std::string one_line(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

ErrorMessage read_error_file(const std::string& path) {
  const json document = parse(path);
  if (!document.is_object() || !document.contains("message")) return {};
  const json& message = document["message"];
  if (!message.is_object()) return {text_of(document, "message"), "", time_of(document), one_line(document)};
  const json extra = message.value("extraInfo", json::object());
  return {text_of(message, "message"), text_of(extra, "py_callstack"), time_of(extra), one_line(document)};
}

void copy_error_file(const std::string& from, const std::string& to, int error_code) {
  json document = parse(from);
  if (!document.is_object()) return;
  if (document.contains("message") && document["message"].is_object()) document["message"]["errorCode"] = error_code;
  write_file_atomically(to, one_line(document));
}

void write_error_file(const std::string& path, const std::string& message) {
  const json extra = {{"py_callstack", ""}, {"timestamp", std::to_string(std::time(nullptr))}};
  write_file_atomically(path, one_line({{"message", {{"message", message}, {"extraInfo", extra}}}}));
}

}  // namespace cxxrun
