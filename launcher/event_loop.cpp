#include "launcher/event_loop.hpp"

#include <sys/timerfd.h>

#include <algorithm>
#include <utility>

#include "common/error.hpp"

namespace cxxrun {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw errno_error("cannot create an epoll descriptor");
}

bool EventLoop::watch(int fd, uint32_t events, std::function<void()> on_ready) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    if (errno == EPERM) return false;
    throw errno_error(fmt::format("cannot watch descriptor {}", fd));
  }
  handlers_[fd] = std::make_shared<std::function<void()>>(std::move(on_ready));
  return true;
}

void EventLoop::forget(int fd) {
  if (handlers_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::run_once() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, -1);
  if (count < 0 && errno != EINTR) throw errno_error("cannot wait for events");
  for (int i = 0; i < count; ++i) {
    const auto handler = handlers_.find(events[i].data.fd);
    if (handler == handlers_.end()) continue;  // forgotten by an earlier one of this batch
    const auto keep_alive = handler->second;
    (*keep_alive)();
  }
}

Timer::Timer(EventLoop& loop, std::function<void()> on_expiry)
    : loop_(loop), fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!fd_) throw errno_error("cannot create a timer");
  loop_.watch(fd_.get(), EPOLLIN, [fd = fd_.get(), on_expiry = std::move(on_expiry)] {
    uint64_t expirations = 0;
    if (::read(fd, &expirations, sizeof expirations) == sizeof expirations) on_expiry();
  });
}

Timer::~Timer() { loop_.forget(fd_.get()); }

void Timer::arm(std::chrono::nanoseconds after) {
  const int64_t count = std::max<int64_t>(after.count(), 1);  // zero would disarm
  itimerspec spec{};
  spec.it_value = {.tv_sec = count / 1'000'000'000, .tv_nsec = count % 1'000'000'000};
  if (::timerfd_settime(fd_.get(), 0, &spec, nullptr) != 0) throw errno_error("cannot set a timer");
}

void Timer::disarm() {
  const itimerspec never{};
  ::timerfd_settime(fd_.get(), 0, &never, nullptr);
}

}  // namespace cxxrun
