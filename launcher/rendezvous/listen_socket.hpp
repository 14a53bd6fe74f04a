// Opens the port of a store: choosing it and owning it are one step. A soft port may move to one of the next ones, a
// hard one never does. Throws PortInUse naming address, port, owner and remedy, or Error for everything else.
#pragma once

#include <functional>
#include <string>

#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace cxxrun {

struct PortRequest {
  int port = 0;  // 0 = any free port
  bool hard = false;
};

// How far a soft port may move: a search that starts at 12355 ends at 12400.
inline constexpr int kSoftPortRange = 45;

class PortInUse : public Error {
 public:
  using Error::Error;
};

struct BoundSocket {
  UniqueFd fd;  // non-blocking, close-on-exec
  int port = 0;
};

using LogLine = std::function<void(const std::string&)>;

// Where to listen if others come by this name: a loopback name is for this machine only, any other means all of them.
std::string listen_address(const std::string& host);

// `address`: a numeric address, or "" for all interfaces of both families. `log` gets one line when a soft port moves.
BoundSocket open_listener(const std::string& address, PortRequest request, const LogLine& log);

// A port that is bound but not listened on: the kernel gives it to nobody else, while a server that sets
// SO_REUSEADDR, as those of c10d do, can still bind it and listen.
BoundSocket reserve_port(const std::string& address, PortRequest request, const LogLine& log);

}  // namespace cxxrun
