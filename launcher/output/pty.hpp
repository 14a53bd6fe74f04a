// A terminal for a rank, as like ours as its output can tell: same size, and bytes pass through it unchanged. It does not
// become anybody's controlling terminal.
#pragma once

#include <optional>

#include "common/unique_fd.hpp"

namespace cxxrun {

struct Pty {
  UniqueFd master;  // nonblocking; reading fails with EIO once nobody has the slave open
  UniqueFd slave;  // for the rank
};

// None where the system has no terminals left to give.
std::optional<Pty> open_pty(int like_terminal);

void copy_window_size(int from_terminal, int to_terminal);

}  // namespace cxxrun
