// What --rdzv-conf sets, as typed values. Unknown keys are ignored; values may stand in quotes of their own. Throws
// UsageError naming the key.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace cxxrun {

struct RendezvousConf {
  std::optional<bool> is_host;  // unset: whoever owns the end point's address and gets its port
  std::chrono::seconds join_timeout{600};
  std::chrono::seconds last_call_timeout{30};
  std::chrono::seconds close_timeout{30};
  std::chrono::seconds heartbeat_timeout{5};
  std::chrono::seconds keep_alive_interval{5};
  int64_t keep_alive_max_attempt = 3;
};

// Without the blanks and quotes around it.
std::string unquoted(std::string text);

RendezvousConf read_rendezvous_conf(const std::map<std::string, std::string>& conf);

// Whole seconds above 0.
std::chrono::seconds seconds_of(const std::map<std::string, std::string>& conf, const std::string& key,
                                std::chrono::seconds otherwise);

}  // namespace cxxrun
