// Keys shared by the nodes of a job, wherever they are kept: here (LocalStore) or at another node (TcpStoreClient).
// Keys are raw, as the server sees them. Each call ends within the limit set last: StoreTimeout and WaitCancelled
// tell how it did not succeed, StoreClosed that the other end is gone. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/error.hpp"

namespace cxxrun {

class StoreTimeout : public Error {
 public:
  using Error::Error;
};

class WaitCancelled : public Error {
 public:
  using Error::Error;
};

class StoreClosed : public Error {
 public:
  using Error::Error;
};

struct WaitLimit {
  using Clock = std::chrono::steady_clock;

  Clock::time_point deadline;
  int cancel_fd = -1;  // readable = stop waiting; it is not read

  static WaitLimit within(std::chrono::milliseconds duration, int cancel_fd = -1) {
    return {Clock::now() + duration, cancel_fd};
  }
};

class Store {
 public:
  virtual ~Store() = default;

  void set_limit(WaitLimit limit) { limit_ = limit; }

  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::string get(const std::string& key) = 0;  // "" when missing; does not wait for the key
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  virtual bool check(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;  // until all exist

 protected:
  WaitLimit limit_ = WaitLimit::within(std::chrono::minutes(5));
};

}  // namespace cxxrun
