#include "launcher/rendezvous/this_machine.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "common/unique_fd.hpp"

namespace cxxrun {

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

bool is_this_machine(const std::string& host) {
  if (host == "localhost" || host == host_name()) return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    // The kernel binds to no other addresses than the machine's own.
    const UniqueFd socket(::socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && ::bind(socket.get(), address->ai_addr, address->ai_addrlen) == 0) return true;
  }
  return false;
}

}  // namespace cxxrun
