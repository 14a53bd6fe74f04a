// Our own stdout or stderr as a target that never makes us wait: what it does not take now waits here, and full() asks for a
// pause. Bytes pass in order and unchanged. Without a reader it is broken and takes nothing; on any other error (a full disk)
// output is lost until there is room, and take_error() says so. Main thread only.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/unique_fd.hpp"
#include "launcher/event_loop.hpp"

namespace cxxrun {

class OutputSink {
 public:
  // `on_change`: full(), broken() or empty() may have changed, outside of a call of ours.
  OutputSink(EventLoop& loop, int fd, std::function<void()> on_change);
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  void write(std::string_view first, std::string_view second = {});
  // Waits for as long as the target goes on taking something within a second.
  void wait_until_empty();

  int fd() const { return fd_; }
  bool empty() const { return done_ == pending_.size(); }
  bool full() const;
  bool broken() const { return broken_; }
  int take_error() { return std::exchange(error_, 0); }  // errno when output is lost for the first time; else 0

 private:
  size_t write_some(std::string_view first, std::string_view second);
  void flush();
  void watch(bool wanted);

  EventLoop& loop_;
  std::function<void()> on_change_;
  UniqueFd own_;
  int fd_;
  bool is_socket_ = false;
  bool watched_ = false;
  bool broken_ = false;
  bool lost_some_ = false;
  int error_ = 0;
  std::string pending_;
  size_t done_ = 0;  // bytes of pending_ that are written
};

}  // namespace cxxrun
