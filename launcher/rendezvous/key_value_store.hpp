// What a TCPStore holds: keys with values, and queues. Plain data in memory with c10d's semantics and a limit on its
// total size; no network, no waiting. One thread. Throws Error when the limit would be passed or a value is not a
// number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace cxxrun {

class KeyValueStore {
 public:
  explicit KeyValueStore(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  bool has(const std::string& key) const;  // also true for a queue that is not empty
  const std::string& get(const std::string& key) const;  // "" when missing
  void set(const std::string& key, std::string value);
  void append(const std::string& key, const std::string& value);
  int64_t add(const std::string& key, int64_t delta);  // a missing key counts as 0; stored as decimal text

  // The value now: `desired` if it was set, else what is there. A missing key is set when `expected` is empty;
  // otherwise `expected` is echoed, as c10d does.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  bool remove(const std::string& key);

  void queue_push(const std::string& key, std::string value);
  std::optional<std::string> queue_pop(const std::string& key);
  size_t queue_size(const std::string& key) const;

  size_t size() const { return values_.size(); }  // without queues
  std::vector<std::string> keys() const;
  size_t bytes() const { return bytes_; }

 private:
  void charge(size_t added, size_t removed);

  size_t limit_bytes_;
  size_t bytes_ = 0;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
};

}  // namespace cxxrun
