#include "launcher/report/torchrun_table.hpp"

#include <algorithm>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace cxxrun {
namespace {

std::string indented(std::string text) {
  for (size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 3)) text.replace(at, 1, "\n  ");
  return text;
}

std::string traceback_of(const RankOutcome& rank) {
  if (rank.silent_for) {  // which torchrun does not know
    return fmt::format("Hung: no heartbeat for {:.1f} s", static_cast<double>(rank.silent_for->count()) / 1000);
  }
  if (!rank.error.callstack.empty()) return indented(rank.error.callstack);
  if (!rank.error.message.empty()) return indented(rank.error.message);
  if (rank.status->signo != 0) {
    return fmt::format("Signal {} ({}) received by PID {}", rank.status->signo, signal_name(rank.status->signo), rank.pid);
  }
  return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
}

std::string describe(const RankOutcome& rank, size_t index, const std::string& host) {
  const int signo = rank.status->signo;
  const std::time_t ended = rank.error.timestamp.value_or(RankOutcome::WallTime::clock::to_time_t(rank.ended_at));
  return fmt::format(
      "[{}]:\n"
      "  time      : {:%Y-%m-%d_%H:%M:%S}\n"
      "  host      : {}\n"
      "  rank      : {} (local_rank: {})\n"
      "  exitcode  : {} (pid: {}) {}\n"
      "  error_file: {}\n"
      "  traceback : {}",
      index, fmt::localtime(ended), host, rank.rank, rank.local_rank, rank.status->python_code(), rank.pid,
      signo != 0 ? " (" + signal_name(signo) + ")" : "", rank.error_file.empty() ? "<N/A>" : rank.error_file,
      traceback_of(rank));
}

size_t longest_line(const std::string& text) {
  size_t longest = 0;
  for (size_t start = 0; start <= text.size();) {
    const size_t newline = std::min(text.find('\n', start), text.size());
    longest = std::max(longest, newline - start);
    start = newline + 1;
  }
  return longest;
}

}  // namespace

std::string format_torchrun_table(const JobOutcome& job, const std::string& name, const std::string& host) {
  std::vector<size_t> failed;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    const auto& status = job.ranks[i].status;
    if (i == *job.culprit || (status && !status->success())) failed.push_back(i);  // a rank that hung may end well
  }
  std::sort(failed.begin(), failed.end(), [&](size_t a, size_t b) { return job.ranks[a].order < job.ranks[b].order; });

  const std::string title = name + " FAILED";
  std::string root, others;
  size_t width = title.size();
  for (size_t index = 0; index < failed.size(); ++index) {
    const std::string entry = describe(job.ranks[failed[index]], index, host);
    width = std::max(width, longest_line(entry));
    (failed[index] == *job.culprit ? root : others) += entry + "\n";
  }
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";
  width = std::min<size_t>(width, 60);
  const std::string thick(width, '='), thin(width, '-');
  return fmt::format("{}\n{}\n{}\nFailures:\n{}{}\nRoot Cause (first observed failure):\n{}{}\n", thick, title, thin, others,
                     thin, root, thick);
}

}  // namespace cxxrun
