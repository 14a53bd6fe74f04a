#include "launcher/output/pty.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

namespace cxxrun {

std::optional<Pty> open_pty(int like_terminal) {
  Pty pty{.master = UniqueFd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)), .slave = {}};
  char name[64];
  if (!pty.master || ::grantpt(pty.master.get()) != 0 || ::unlockpt(pty.master.get()) != 0 ||
      ::ptsname_r(pty.master.get(), name, sizeof name) != 0) {
    return std::nullopt;
  }
  pty.slave = UniqueFd(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (!pty.slave || ::tcgetattr(pty.slave.get(), &settings) != 0) return std::nullopt;
  ::cfmakeraw(&settings);
  ::tcsetattr(pty.slave.get(), TCSANOW, &settings);
  copy_window_size(like_terminal, pty.slave.get());
  ::fcntl(pty.master.get(), F_SETFL, O_NONBLOCK);
  return pty;
}

void copy_window_size(int from_terminal, int to_terminal) {
  winsize size{};
  if (::ioctl(from_terminal, TIOCGWINSZ, &size) == 0) ::ioctl(to_terminal, TIOCSWINSZ, &size);
}

}  // namespace cxxrun
