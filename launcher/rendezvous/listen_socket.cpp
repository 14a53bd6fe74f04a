#include "launcher/rendezvous/listen_socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "launcher/rendezvous/port_owner.hpp"

namespace cxxrun {
namespace {

enum class Use { kListen, kReserve };

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  in_port_t& port() {
    return family() == AF_INET ? reinterpret_cast<sockaddr_in&>(storage).sin_port
                               : reinterpret_cast<sockaddr_in6&>(storage).sin6_port;
  }
};

bool parse_address(const std::string& text, int family, Address& address) {
  address.storage.ss_family = static_cast<sa_family_t>(family);
  address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  void* binary = family == AF_INET ? static_cast<void*>(&reinterpret_cast<sockaddr_in&>(address.storage).sin_addr)
                                   : &reinterpret_cast<sockaddr_in6&>(address.storage).sin6_addr;
  return ::inet_pton(family, text.c_str(), binary) == 1;
}

void set_option(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); }

// errno is left for the caller when the result is empty.
BoundSocket try_bind(Address address, int port, Use use, bool exclusive) {
  BoundSocket result;
  result.fd.reset(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int fd = result.fd.get();
  if (fd < 0) return {};
  if (!exclusive) set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  address.port() = htons(static_cast<in_port_t>(port));
  if (::bind(fd, address.raw(), address.length) != 0) return {};
  if (use == Use::kListen && ::listen(fd, SOMAXCONN) != 0) return {};
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::getsockname(fd, address.raw(), &address.length) != 0) return {};
  result.port = ntohs(address.port());
  return result;
}

BoundSocket bind_once(const std::string& text, PortRequest request, int port, Use use) {
  // Two reservations with SO_REUSEADDR would both get a port; without it, one that is still in TIME_WAIT is refused.
  const bool exclusive = use == Use::kReserve && !request.hard;
  Address address;
  BoundSocket bound;
  if (text.empty()) {
    parse_address("::", AF_INET6, address);
    bound = try_bind(address, port, use, exclusive);
    if (!bound.fd && errno != EADDRINUSE && errno != EACCES) {  // a kernel without IPv6
      parse_address("0.0.0.0", AF_INET, address);
      bound = try_bind(address, port, use, exclusive);
    }
  } else {
    if (!parse_address(text, AF_INET, address) && !parse_address(text, AF_INET6, address)) {
      throw Error("'{}' is not a numeric address to listen on", text);
    }
    bound = try_bind(address, port, use, exclusive);
  }
  if (bound.fd) return bound;
  const int error = errno;
  const std::string where = fmt::format("{}:{}", text.empty() ? "[all interfaces]" : text, port);
  if (error != EADDRINUSE) throw errno_error("cannot listen on " + where, error);
  const std::string owner = find_port_owner(port);
  throw PortInUse("cannot listen on {}: {} (EADDRINUSE){}; stop it, or choose another --master_port", where,
                  std::strerror(error), owner.empty() ? "" : ", held by " + owner);
}

BoundSocket open_port(const std::string& address, PortRequest request, Use use, const LogLine& log) {
  const int last = request.hard || request.port == 0 ? request.port : std::min(request.port + kSoftPortRange, 65535);
  std::string reason;
  for (int port = request.port;; ++port) {
    try {
      BoundSocket bound = bind_once(address, request, port, use);
      if (port != request.port && log) log(fmt::format("{}; using port {} instead", reason, port));
      return bound;
    } catch (const PortInUse& error) {
      if (port == last) {
        if (last == request.port) throw;
        throw PortInUse("no free port from {} to {}: {}", request.port, last, error.what());
      }
      if (reason.empty()) {
        const std::string owner = find_port_owner(port);
        reason = fmt::format("port {} is in use{}", port, owner.empty() ? "" : " by " + owner);
      }
    }
  }
}

}  // namespace

std::string listen_address(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  return host.starts_with("127.") || host == "::1" ? host : "";
}

BoundSocket open_listener(const std::string& address, PortRequest request, const LogLine& log) {
  return open_port(address, request, Use::kListen, log);
}

BoundSocket reserve_port(const std::string& address, PortRequest request, const LogLine& log) {
  return open_port(address, request, Use::kReserve, log);
}

}  // namespace cxxrun
