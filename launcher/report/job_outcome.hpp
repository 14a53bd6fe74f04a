// How a job on this node ended, as values: what the reports tell, each in its own form.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/error_file.hpp"
#include "launcher/report/exit_status.hpp"

namespace cxxrun {

struct RankOutcome {
  using WallTime = std::chrono::system_clock::time_point;

  int rank = 0;
  int local_rank = 0;
  int64_t pid = 0;
  std::optional<ExitStatus> status = {};  // absent: it could not be killed
  std::chrono::milliseconds ran_for{0};
  WallTime ended_at = {};
  int order = 0;  // of being noticed, from 0
  bool asked_to_end = false;  // by us, before it ended
  bool killed_by_us = false;
  std::optional<std::chrono::milliseconds> silent_for = {};  // it hung: no heartbeat for so long
  std::optional<int64_t> last_step = {};
  std::vector<std::string> last_lines = {};  // of its stderr
  std::string error_file = {};  // "" = it wrote none
  ErrorMessage error = {};  // what is in it
};

struct JobOutcome {
  std::string program;
  std::vector<RankOutcome> ranks;  // of the last attempt, by local rank
  std::optional<size_t> culprit = {};  // index of the first to fail
  int64_t oom_kills = 0;  // of this cgroup during the attempt
  int attempts = 1;
  int stop_signal = 0;  // that ended the job from outside
  bool peer_node_failed = false;
  int exit_code = 0;
  std::string error = {};  // of cxxrun itself, which ended the job: nodes that do not meet, ranks that cannot be started
};

// How many of a culprit's last lines are looked through for a cause, and how many the report shows.
inline constexpr size_t kSearchedStderrLines = 200;
inline constexpr size_t kReportedStderrLines = 8;

// The kernel killed the culprit for lack of main memory.
bool killed_for_memory(const JobOutcome& job);

// Requires a culprit. "exit code 3", "signal SIGKILL (killed by the kernel: out of memory)", "hung: no heartbeat for 30.0 s".
std::string describe_culprits_end(const JobOutcome& job);

// Requires a culprit. What its error file says, else the last line of a Python traceback or the what() of a C++ exception on
// its stderr, else "".
std::string culprits_error(const JobOutcome& job);

// Requires a culprit. What helps, or "".
std::string find_remedy(const JobOutcome& job);

}  // namespace cxxrun
