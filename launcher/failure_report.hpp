// The last words on stderr after a failure: which rank failed first, how, what it said last, what to do about it, and what
// became of the others. Pure: everything comes in as values. At most 20 lines; nothing about the launcher itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/exit_status.hpp"

namespace cxxrun {

struct RankOutcome {
  int rank = 0;
  int local_rank = 0;
  int64_t pid = 0;
  std::optional<ExitStatus> status = {};  // absent: it could not be killed
  std::chrono::milliseconds ran_for{0};
  bool asked_to_end = false;  // by us, before it ended
  bool killed_by_us = false;
  std::optional<int64_t> last_step = {};
  std::vector<std::string> last_lines = {};  // of its stderr
  std::string message = {};  // from its error file
};

struct JobOutcome {
  std::string program;
  std::vector<RankOutcome> ranks;
  size_t culprit = 0;  // index of the first to fail
  int64_t oom_kills = 0;  // of this cgroup during the attempt
  int attempts = 1;
};

inline constexpr size_t kReportedStderrLines = 8;

std::string format_failure_report(const JobOutcome& job);

// "ranks 0, 2-5".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace cxxrun
