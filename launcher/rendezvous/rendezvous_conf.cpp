#include "launcher/rendezvous/rendezvous_conf.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include "common/error.hpp"

namespace cxxrun {
namespace {

using Conf = std::map<std::string, std::string>;

constexpr int64_t kLargest = 1'000'000'000;  // seconds: 31 years

// "" when not given. A string that was quoted as a whole leaves its quotes at the first key and the last value.
std::string text_of(const Conf& conf, const std::string& key) {
  for (const auto& [name, value] : conf) {
    if (unquoted(name) == key) return unquoted(value);
  }
  return "";
}

int64_t number_of(const Conf& conf, const std::string& key, int64_t otherwise) {
  const std::string text = text_of(conf, key);
  if (text.empty()) return otherwise;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > kLargest) {
    throw UsageError("--rdzv-conf: {}={} must be a whole number above 0", key, text);
  }
  return number;
}

std::optional<bool> flag_of(const Conf& conf, const std::string& key) {
  std::string text = text_of(conf, key);
  if (text.empty()) return std::nullopt;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view yes : {"1", "true", "t", "yes", "y"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "false", "f", "no", "n"}) {
    if (text == no) return false;
  }
  throw UsageError("--rdzv-conf: {}={} is neither true nor false", key, text);
}

}  // namespace

std::string unquoted(std::string text) {
  static constexpr char kAround[] = " \t'\"";
  text.erase(0, std::min(text.find_first_not_of(kAround), text.size()));
  text.erase(text.find_last_not_of(kAround) + 1);
  return text;
}

std::chrono::seconds seconds_of(const Conf& conf, const std::string& key, std::chrono::seconds otherwise) {
  return std::chrono::seconds(number_of(conf, key, otherwise.count()));
}

RendezvousConf read_rendezvous_conf(const Conf& conf) {
  if (const std::string type = text_of(conf, "store_type"); !type.empty() && type != "tcp") {
    throw UsageError("--rdzv-conf: store_type={} is not supported; leave it out, nodes meet over TCP", type);
  }
  RendezvousConf result;
  result.is_host = flag_of(conf, "is_host");
  result.join_timeout = seconds_of(conf, "join_timeout", result.join_timeout);
  result.last_call_timeout = seconds_of(conf, "last_call_timeout", result.last_call_timeout);
  result.close_timeout = seconds_of(conf, "close_timeout", result.close_timeout);
  result.heartbeat_timeout = seconds_of(conf, "heartbeat_timeout", result.heartbeat_timeout);
  result.keep_alive_interval = seconds_of(conf, "keep_alive_interval", result.keep_alive_interval);
  result.keep_alive_max_attempt = number_of(conf, "keep_alive_max_attempt", result.keep_alive_max_attempt);
  return result;
}

}  // namespace cxxrun
