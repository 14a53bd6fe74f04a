#include "common/control_channel.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <charconv>

#include "common/error.hpp"

namespace cxxrun {

ControlChannel::ControlChannel(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  if (fd < 0 || ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) return;
  fd_.reset(fd);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // the rank's own children are not part of the conversation
}

std::pair<ControlChannel, UniqueFd> ControlChannel::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw errno_error("cannot create a control socket");
  return {ControlChannel(ends[0]), UniqueFd(ends[1])};
}

void ControlChannel::send(std::string_view verb, int64_t value) {
  if (!fd_) return;
  const std::string packet = fmt::format("{} {}", verb, value);
  // A full queue means that nobody listens: what is said here is only ever news, so it is dropped.
  ::send(fd_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

std::optional<ControlMessage> ControlChannel::poll() {
  while (fd_) {
    char packet[128];
    const ssize_t size = ::recv(fd_.get(), packet, sizeof packet, MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return std::nullopt;
    if (size <= 0) {
      fd_.reset();
      break;
    }
    const std::string_view text(packet, static_cast<size_t>(size));
    const size_t blank = text.find(' ');
    ControlMessage message{.verb = std::string(text.substr(0, blank))};
    if (blank != text.npos) std::from_chars(text.data() + blank + 1, text.data() + text.size(), message.value);
    return message;
  }
  return std::nullopt;
}

}  // namespace cxxrun
