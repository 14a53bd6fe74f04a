#include "launcher/rendezvous/local_store.hpp"

#include <poll.h>

#include <algorithm>

#include "launcher/rendezvous/socket_io.hpp"

namespace cxxrun {

bool LocalStore::check(const std::vector<std::string>& keys) {
  return std::ranges::all_of(keys, [&](const auto& key) { return server_.has(key); });
}

void LocalStore::wait(const std::vector<std::string>& keys) {
  while (!check(keys)) {
    poll_until(server_.fd(), POLLIN, limit_, "waiting for other nodes");
    server_.on_ready();
  }
}

}  // namespace cxxrun
