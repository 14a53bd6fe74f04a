#include "launcher/failure_report.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cxxrun {
namespace {

constexpr size_t kLineWidth = 200;
constexpr size_t kMessageLines = 3;
constexpr size_t kOtherGroups = 3;

struct Remedy {
  const char* text;  // that the rank wrote
  const char* remedy;
};

constexpr Remedy kRemedies[] = {
    {"CUDA out of memory",
     "GPU memory is full: lower the batch size or accumulate gradients; nvidia-smi shows who else uses the GPU"},
    {"OutOfMemoryError",
     "GPU memory is full: lower the batch size or accumulate gradients; nvidia-smi shows who else uses the GPU"},
    {"invalid device ordinal", "there are fewer GPUs than ranks: lower --nproc-per-node or use --nproc-per-node=gpu"},
    {"ddress already in use",
     "leave out --master-port so that a free one is taken, or end the process that has it (ss -ltnp)"},
    {"EADDRINUSE", "leave out --master-port so that a free one is taken, or end the process that has it (ss -ltnp)"},
    {"NCCL", "NCCL_DEBUG=INFO says what it tried; NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1 rule out the links"},
    {"error while loading shared libraries",
     "the loader's search path lacks that library: set LD_LIBRARY_PATH, or install it"},
    {"ModuleNotFoundError", "another Python than you think? PYTHON_EXEC chooses the interpreter"},
    {"No space left on device", "a disk is full, or /dev/shm is (docker: --shm-size)"},
    {"Too many open files", "raise the limit: ulimit -n"},
};

std::string cut(const std::string& line) { return line.size() <= kLineWidth ? line : line.substr(0, kLineWidth) + "…"; }

bool killed_for_memory(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[job.culprit];
  return job.oom_kills > 0 && culprit.status && culprit.status->shell_code() == 128 + SIGKILL;
}

std::string find_remedy(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[job.culprit];
  if (killed_for_memory(job)) {
    return "main memory ran out: fewer loader workers, a smaller batch, or a higher limit for this container";
  }
  std::string said = culprit.message;
  for (const std::string& line : culprit.last_lines) said += "\n" + line;
  for (const Remedy& row : kRemedies) {
    if (said.find(row.text) != said.npos) return row.remedy;
  }
  return "";
}

std::string describe_culprit(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[job.culprit];
  const bool is_vla_worker = std::filesystem::path(job.program).filename() == "vla_worker";
  std::string how = culprit.status ? describe(*culprit.status, is_vla_worker) : "still running";
  if (killed_for_memory(job)) {
    how = fmt::format("{} (killed by the kernel: out of memory)", how.substr(0, how.find(" (")));
  }
  const std::string step = culprit.last_step ? fmt::format(", last step {}", *culprit.last_step) : "";
  return fmt::format("rank {} (local rank {}, pid {}) failed first, {:.1f} s after its start{}: {}", culprit.rank,
                     culprit.local_rank, culprit.pid, static_cast<double>(culprit.ran_for.count()) / 1000, step, how);
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

std::string format_failure_report(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[job.culprit];
  std::string report =
      fmt::format("cxxrun: {} failed{}\n", job.program, job.attempts > 1 ? fmt::format(" {} times", job.attempts) : "");
  report += "  " + describe_culprit(job) + "\n";

  size_t lines = 0;
  for (size_t start = 0; start < culprit.message.size() && lines < kMessageLines; ++lines) {
    const size_t newline = std::min(culprit.message.find('\n', start), culprit.message.size());
    report += fmt::format("  {} {}\n", lines == 0 ? "it reports:" : "  |",
                          cut(culprit.message.substr(start, newline - start)));
    start = newline + 1;
  }
  if (!culprit.last_lines.empty()) report += "  last lines of its stderr:\n";
  for (const std::string& line : culprit.last_lines) report += "    | " + cut(line) + "\n";
  if (const std::string remedy = find_remedy(job); !remedy.empty()) report += "  what helps: " + remedy + "\n";

  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    if (i == job.culprit) continue;
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

}  // namespace cxxrun
