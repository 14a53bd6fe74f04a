#include "launcher/rendezvous/socket_io.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>

namespace cxxrun {

std::string peer_name(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a client that left";
  }
  return fmt::format("{}:{}", host, port);
}

void poll_until(int fd, short events, const WaitLimit& limit, const std::string& purpose) {
  while (true) {
    pollfd fds[] = {{fd, events, 0}, {limit.cancel_fd, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit.deadline - WaitLimit::Clock::now()).count();
    const int ready = ::poll(fds, 2, static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX)));
    if (ready < 0 && errno != EINTR) throw errno_error("poll while " + purpose);
    if (ready > 0 && fds[1].revents != 0) throw WaitCancelled("cancelled while " + purpose);
    if (ready > 0) return;
    if (ready == 0 && left <= 0) throw StoreTimeout("timed out while " + purpose);
  }
}

}  // namespace cxxrun
