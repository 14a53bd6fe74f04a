#include "launcher/report/failure_report.hpp"

#include <algorithm>
#include <csignal>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cxxrun {
namespace {

constexpr size_t kLineWidth = 200;
constexpr size_t kMessageLines = 3;
constexpr size_t kOtherGroups = 3;

std::string cut(const std::string& line) { return line.size() <= kLineWidth ? line : line.substr(0, kLineWidth) + "…"; }

std::string describe_culprit(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[*job.culprit];
  const std::string step = culprit.last_step ? fmt::format(", last step {}", *culprit.last_step) : "";
  return fmt::format("rank {} (local rank {}, pid {}) failed first, {:.1f} s after its start{}: {}", culprit.rank,
                     culprit.local_rank, culprit.pid, static_cast<double>(culprit.ran_for.count()) / 1000, step,
                     describe_culprits_end(job));
}

std::string describe_other(const RankOutcome& rank) {
  if (!rank.status) return "could not be killed";
  if (rank.killed_by_us && rank.status->signo == SIGKILL) {
    return "killed by cxxrun: did not end in time after being asked to";
  }
  if (rank.asked_to_end && rank.status->signo == SIGTERM) return "stopped by cxxrun";
  const std::string how = rank.status->success() ? "ended well" : describe(*rank.status);
  return rank.asked_to_end ? "stopped by cxxrun, " + how : how;
}

}  // namespace

std::string name_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    parts.push_back(last == i ? std::to_string(ranks[i])
                              : fmt::format("{}{}{}", ranks[i], last == i + 1 ? ", " : "-", ranks[last]));
    i = last + 1;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(parts, ", "));
}

namespace {

std::string describe_failure(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[*job.culprit];
  std::string report =
      fmt::format("cxxrun: {} failed{}\n", job.program, job.attempts > 1 ? fmt::format(" {} times", job.attempts) : "");
  report += "  " + describe_culprit(job) + "\n";

  const std::string error = culprits_error(job);
  size_t lines = 0;
  for (size_t start = 0; start < error.size() && lines < kMessageLines; ++lines) {
    const size_t newline = std::min(error.find('\n', start), error.size());
    report += fmt::format("  {} {}\n", lines == 0 ? "error:" : "  |", cut(error.substr(start, newline - start)));
    start = newline + 1;
  }
  if (!culprit.last_lines.empty()) report += "  last lines of its stderr:\n";
  for (size_t i = culprit.last_lines.size() - std::min(kReportedStderrLines, culprit.last_lines.size());
       i < culprit.last_lines.size(); ++i) {
    report += "    | " + cut(culprit.last_lines[i]) + "\n";
  }
  if (const std::string remedy = find_remedy(job); !remedy.empty()) report += "  what helps: " + remedy + "\n";

  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    if (i == *job.culprit) continue;
    const std::string text = describe_other(job.ranks[i]);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == text; });
    if (group == groups.end()) group = groups.insert(group, {text, {}});
    group->second.push_back(job.ranks[i].rank);
  }
  for (size_t i = 0; i < groups.size() && i < kOtherGroups; ++i) {
    report += fmt::format("  {}: {}\n", name_ranks(groups[i].second), groups[i].first);
  }
  if (groups.size() > kOtherGroups) {
    report += fmt::format("  and {} more kinds of endings\n", groups.size() - kOtherGroups);
  }
  return report;
}

}  // namespace

std::string format_failure_report(const JobOutcome& job) {
  std::string report = job.culprit ? describe_failure(job) : "";
  // Where a rank failed here, others' failures are most often its consequence.
  if (job.peer_node_failed && !job.culprit) report += "cxxrun: ranks of another node failed, or it was lost: see its output\n";
  if (job.stop_signal != 0) {
    const auto killed =
        std::count_if(job.ranks.begin(), job.ranks.end(), [](const RankOutcome& rank) { return rank.killed_by_us; });
    report += fmt::format("cxxrun: stopped by {} from outside{}\n", signal_name(job.stop_signal),
                          killed ? fmt::format("; {} of {} ranks had to be killed", killed, job.ranks.size()) : "");
  }
  return report;
}

}  // namespace cxxrun
