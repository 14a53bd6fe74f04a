// Calls a function when a descriptor is ready. Passive otherwise: owns no descriptor that it watches and knows nothing of
// their meaning. Main thread only. Functions may watch and forget descriptors, their own included.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "common/unique_fd.hpp"

namespace cxxrun {

class EventLoop {
 public:
  EventLoop();
  // False for a descriptor that is always ready and cannot be waited for, such as a regular file.
  bool watch(int fd, uint32_t events, std::function<void()> on_ready);
  void forget(int fd);
  // Waits for events once and handles them.
  void run_once();

 private:
  UniqueFd epoll_;
  std::map<int, std::shared_ptr<std::function<void()>>> handlers_;
};

// One-shot timer of the monotonic clock.
class Timer {
 public:
  Timer(EventLoop& loop, std::function<void()> on_expiry);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void arm(std::chrono::nanoseconds after);
  void disarm();

 private:
  EventLoop& loop_;
  UniqueFd fd_;
};

}  // namespace cxxrun
