// Who waits for what in a store: clients in WAIT, each for keys that it misses, and clients in BARRIER. Says whose
// wait has ended; answering them is the caller's. A client is a number, and waits for one thing at a time. One
// thread.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/rendezvous/key_value_store.hpp"

namespace cxxrun {

class WaitList {
 public:
  explicit WaitList(const KeyValueStore& data) : data_(data) {}  // must outlive this

  // True if all keys are there; otherwise the client waits. A key once seen counts as seen. Throws Error if it waits
  // already.
  bool wait(int client, std::vector<std::string> keys);
  void wait_in_barrier(int client, const std::string& key);
  void forget(int client);

  std::vector<int> on_key(const std::string& key);  // it may have been created
  std::optional<int> on_queue_element(
      const std::string& key);  // one element serves one client, the one that waited longest
  std::vector<int> on_barrier_complete(const std::string& key);

  size_t held_bytes(int client) const;

 private:
  using Waiters = std::unordered_map<std::string, std::deque<int>>;  // in order of arrival

  void check_idle(int client) const;
  bool resume(int client);

  const KeyValueStore& data_;
  std::unordered_map<int, std::vector<std::string>>
      awaited_;  // each client stands in waiters_ under the last of its keys
  std::unordered_map<int, std::string> in_barrier_;
  Waiters waiters_;
  Waiters barrier_waiters_;
};

}  // namespace cxxrun
