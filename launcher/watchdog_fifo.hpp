// torch.distributed.elastic's file timer: a FIFO in which ranks announce by when a piece of work must be over, as JSON lines
//   {"version": 1, "pid": …, "scope_id": "…", "expiration_time": <Unix seconds; negative = over>, "signal": 9}
// Owns the FIFO (made, and removed by the destructor) and calls back when a deadline has passed. What comes out of it is not
// trusted: lines that are none of this are dropped. Main thread only. Throws Error when the FIFO cannot be made.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "common/unique_fd.hpp"
#include "launcher/event_loop.hpp"

namespace cxxrun {

struct Overrun {
  pid_t pid = 0;
  std::string scope = {};
  int signo = 0;
};

class WatchdogFifo {
 public:
  WatchdogFifo(EventLoop& loop, std::string path, std::function<void(const Overrun&)> on_overrun);
  ~WatchdogFifo();
  WatchdogFifo(const WatchdogFifo&) = delete;
  WatchdogFifo& operator=(const WatchdogFifo&) = delete;

 private:
  struct Deadline {
    double time = 0;  // Unix seconds
    int signo = 0;
  };

  void read();
  void take(const std::string& line);
  void check();

  EventLoop& loop_;
  std::string path_;
  std::function<void(const Overrun&)> on_overrun_;
  UniqueFd fd_;
  Timer timer_;
  std::string held_;  // the start of a line
  std::map<std::pair<pid_t, std::string>, Deadline> deadlines_;
};

}  // namespace cxxrun
