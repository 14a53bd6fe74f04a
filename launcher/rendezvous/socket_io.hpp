// Small helpers around sockets and poll that the store's two ends share.
#pragma once

#include <string>

#include "launcher/rendezvous/store.hpp"

namespace cxxrun {

// "10.0.0.2:41234" of the other end.
std::string peer_name(int socket);

// Until `fd` has one of `events`. Throws StoreTimeout or WaitCancelled, naming `purpose`.
void poll_until(int fd, short events, const WaitLimit& limit, const std::string& purpose);

}  // namespace cxxrun
