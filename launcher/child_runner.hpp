// The seam between the supervisor and the operating system: starting, signalling and reaping the ranks of an attempt, and
// ending what they leave behind. ProcessRunner is the real one; tests have a fake that passes the same conformance tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/rank_plan.hpp"
#include "launcher/report/exit_status.hpp"

namespace cxxrun {

struct RankExit {
  int local_rank = 0;
  ExitStatus status;
};

// A rank's heartbeat.
struct Beat {
  int64_t step = 0;
  std::chrono::steady_clock::time_point time = {};
};

class ChildRunner {
 public:
  virtual ~ChildRunner() = default;

  // Requires: nothing of an earlier attempt is left. Throws Error; ranks that were started are then killed.
  virtual void start(const std::vector<RankPlan>& plans) = 0;
  // What has ended since the last call, each rank once, in the order of being noticed.
  virtual std::vector<RankExit> take_exits() = 0;
  virtual void signal_ranks(int signo) = 0;  // the process group of every rank that has not been taken yet
  virtual void tell_ranks(std::string_view verb, int64_t value) = 0;
  virtual bool anything_left() const = 0;  // ranks or processes that they left behind
  virtual void signal_leftovers(int signo) = 0;
  virtual std::string describe_leftovers() const = 0;

  virtual int64_t pid(int local_rank) const = 0;
  virtual std::vector<std::string> last_stderr_lines(int local_rank, size_t count) = 0;
  virtual std::optional<Beat> last_beat(int local_rank) const = 0;
  virtual bool is_stopped(int local_rank) const = 0;  // by a signal or a debugger, or in uninterruptible sleep
};

}  // namespace cxxrun
