#include "launcher/rendezvous/wait_list.hpp"

#include <utility>

#include "common/error.hpp"

namespace cxxrun {
namespace {

void leave(std::unordered_map<std::string, std::deque<int>>& waiters, const std::string& key, int client) {
  const auto found = waiters.find(key);
  std::erase(found->second, client);
  if (found->second.empty()) waiters.erase(found);
}

}  // namespace

bool WaitList::wait(int client, std::vector<std::string> keys) {
  check_idle(client);
  awaited_[client] = std::move(keys);
  return resume(client);
}

void WaitList::wait_in_barrier(int client, const std::string& key) {
  check_idle(client);
  in_barrier_[client] = key;
  barrier_waiters_[key].push_back(client);
}

void WaitList::forget(int client) {
  if (const auto waiting = awaited_.extract(client)) leave(waiters_, waiting.mapped().back(), client);
  if (const auto waiting = in_barrier_.extract(client)) leave(barrier_waiters_, waiting.mapped(), client);
}

std::vector<int> WaitList::on_key(const std::string& key) {
  std::vector<int> ended;
  if (waiters_.empty() || !data_.has(key)) return ended;
  if (const auto woken = waiters_.extract(key)) {
    for (const int client : woken.mapped()) {
      if (resume(client)) ended.push_back(client);
    }
  }
  return ended;
}

std::optional<int> WaitList::on_queue_element(const std::string& key) {
  for (auto found = waiters_.find(key); found != waiters_.end(); found = waiters_.find(key)) {
    const int client = found->second.front();
    found->second.pop_front();
    if (found->second.empty()) waiters_.erase(found);
    if (resume(client)) return client;
  }
  return std::nullopt;
}

std::vector<int> WaitList::on_barrier_complete(const std::string& key) {
  std::vector<int> ended;
  if (const auto woken = barrier_waiters_.extract(key)) {
    ended.assign(woken.mapped().begin(), woken.mapped().end());
    for (const int client : ended) in_barrier_.erase(client);
  }
  return ended;
}

size_t WaitList::held_bytes(int client) const {
  size_t bytes = 0;
  if (const auto found = awaited_.find(client); found != awaited_.end()) {
    for (const auto& key : found->second) bytes += key.size();
  }
  return bytes;
}

void WaitList::check_idle(int client) const {
  if (awaited_.contains(client) || in_barrier_.contains(client)) throw Error("WAIT or BARRIER during another wait");
}

bool WaitList::resume(int client) {
  auto& keys = awaited_.at(client);
  while (!keys.empty() && data_.has(keys.back())) keys.pop_back();
  if (!keys.empty()) {
    waiters_[keys.back()].push_back(client);
    return false;
  }
  awaited_.erase(client);
  return true;
}

}  // namespace cxxrun
