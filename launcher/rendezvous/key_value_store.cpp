#include "launcher/rendezvous/key_value_store.hpp"

#include <charconv>
#include <utility>

#include "common/error.hpp"

namespace cxxrun {
namespace {

constexpr size_t kEntryOverhead = 128;  // nodes and string headers, so that a flood of empty values meets the limit too

}  // namespace

bool KeyValueStore::has(const std::string& key) const { return values_.contains(key) || queues_.contains(key); }

const std::string& KeyValueStore::get(const std::string& key) const {
  static const std::string kMissing;
  const auto found = values_.find(key);
  return found == values_.end() ? kMissing : found->second;
}

void KeyValueStore::set(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    charge(key.size() + value.size() + kEntryOverhead, 0);
    values_.emplace(key, std::move(value));
  } else {
    charge(value.size(), found->second.size());
    found->second = std::move(value);
  }
}

void KeyValueStore::append(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  if (found == values_.end()) return set(key, value);
  charge(value.size(), 0);
  found->second += value;
}

int64_t KeyValueStore::add(const std::string& key, int64_t delta) {
  int64_t number = 0;
  if (const auto found = values_.find(key); found != values_.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw Error("ADD to key '{}' whose value '{}' is not an integer", key, text.substr(0, 40));
    }
  }
  if (__builtin_add_overflow(number, delta, &number)) throw Error("ADD to key '{}' leaves the range of int64", key);
  set(key, std::to_string(number));
  return number;
}

std::string KeyValueStore::compare_set(const std::string& key, const std::string& expected,
                                       const std::string& desired) {
  const auto found = values_.find(key);
  if (found == values_.end() && !expected.empty()) return expected;
  if (found != values_.end() && found->second != expected) return found->second;
  set(key, desired);
  return desired;
}

bool KeyValueStore::remove(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  charge(0, key.size() + found->second.size() + kEntryOverhead);
  values_.erase(found);
  return true;
}

void KeyValueStore::queue_push(const std::string& key, std::string value) {
  charge(key.size() + value.size() + kEntryOverhead, 0);
  queues_[key].push_back(std::move(value));
}

std::optional<std::string> KeyValueStore::queue_pop(const std::string& key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) return std::nullopt;
  std::string value = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) queues_.erase(found);
  charge(0, key.size() + value.size() + kEntryOverhead);
  return value;
}

size_t KeyValueStore::queue_size(const std::string& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.size();
}

std::vector<std::string> KeyValueStore::keys() const {
  std::vector<std::string> result;
  result.reserve(values_.size());
  for (const auto& [key, value] : values_) result.push_back(key);
  return result;
}

void KeyValueStore::charge(size_t added, size_t removed) {
  if (bytes_ - removed + added > limit_bytes_) {
    throw Error("the store holds {} bytes and {} more would pass its limit of {}", bytes_, added, limit_bytes_);
  }
  bytes_ += added - removed;
}

}  // namespace cxxrun
