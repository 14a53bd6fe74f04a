// The supervisor's time: what it is now, and one timer per kind of event, which comes back as that event.
#pragma once

#include <chrono>
#include <functional>
#include <map>

#include "launcher/event_loop.hpp"
#include "launcher/supervisor_table.hpp"

namespace cxxrun {

class SupervisorClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~SupervisorClock() = default;
  virtual TimePoint now() const = 0;
  virtual void arm(Event event, std::chrono::nanoseconds after) = 0;  // again: replaces
  virtual void disarm(Event event) = 0;
};

class LoopClock : public SupervisorClock {
 public:
  LoopClock(EventLoop& loop, std::function<void(Event)> on_expiry) : loop_(loop), on_expiry_(std::move(on_expiry)) {}

  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  void arm(Event event, std::chrono::nanoseconds after) override {
    timers_.try_emplace(event, loop_, [this, event] { on_expiry_(event); }).first->second.arm(after);
  }
  void disarm(Event event) override {
    if (const auto timer = timers_.find(event); timer != timers_.end()) timer->second.disarm();
  }

 private:
  EventLoop& loop_;
  std::function<void(Event)> on_expiry_;
  std::map<Event, Timer> timers_;
};

}  // namespace cxxrun
