#include "launcher/process_runner.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "common/error.hpp"
#include "common/worker_env.hpp"
#include "launcher/guardian.hpp"

namespace cxxrun {

ProcessRunner::ProcessRunner(EventLoop& loop, OutputRouter& output, ControlChannel& guardian, std::string program,
                             const sigset_t& signal_mask)
    : loop_(loop), output_(output), guardian_(guardian), program_(std::move(program)), signal_mask_(signal_mask) {}

ProcessRunner::~ProcessRunner() {
  for (auto& [local_rank, rank] : ranks_) close_control(rank);
}

void ProcessRunner::start(const std::vector<RankPlan>& plans) {
  for (auto& [local_rank, rank] : ranks_) close_control(rank);
  ranks_.clear();
  output_.start_attempt(plans);
  for (const RankPlan& plan : plans) start(plan);
}

void ProcessRunner::start(const RankPlan& plan) {
  std::error_code ignored;  // error files are a courtesy
  std::filesystem::create_directories(std::filesystem::path(plan.error_file).parent_path(), ignored);
  std::filesystem::remove(plan.error_file, ignored);  // when nodes change, an attempt has the same folder again
  auto [control, rank_end] = ControlChannel::make_pair();
  const RankStreams streams = output_.open(plan);
  SpawnSpec spec{.path = program_,
                 .argv = plan.argv,
                 .environment = plan.environment,
                 .stdout_fd = streams.out.get(),
                 .stderr_fd = streams.err.get(),
                 .placement = plan.placement,
                 .inherited_fd = rank_end.get(),
                 .signal_mask = signal_mask_};
  spec.environment.emplace_back(kControlFdVariable, std::to_string(rank_end.get()));
  ChildProcess process = ChildProcess::spawn(spec);
  const pid_t pid = process.pid();
  guardian_.send(kRankStarted, pid);
  Rank& rank = ranks_.emplace(plan.local_rank, Rank{std::move(process), std::move(control), pid}).first->second;
  loop_.watch(rank.control.fd(), EPOLLIN, [this, &rank] { read_control(rank); });
}

void ProcessRunner::read_control(Rank& rank) {
  const int fd = rank.control.fd();
  while (const auto message = rank.control.poll()) {
    if (message->verb == kBeat) rank.last_beat = {message->value, std::chrono::steady_clock::now()};
  }
  if (rank.control.closed()) loop_.forget(fd);
}

void ProcessRunner::close_control(Rank& rank) {
  if (!rank.control.closed()) loop_.forget(rank.control.fd());
  rank.control = ControlChannel();
}

std::vector<RankExit> ProcessRunner::take_exits() {
  std::vector<RankExit> exits;
  while (const auto pid = orphans_.next_ended()) {
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(),
                                   [&](const auto& entry) { return entry.second.process.pid() == *pid; });
    if (rank == ranks_.end()) {
      orphans_.reap(*pid);
      continue;
    }
    read_control(rank->second);
    close_control(rank->second);
    guardian_.send(kRankEnded, *pid);  // before the number can belong to somebody else
    exits.push_back({rank->first, rank->second.process.reap().value()});
  }
  return exits;
}

void ProcessRunner::signal_ranks(int signo) {
  if (signo == SIGWINCH) output_.resize();
  for (auto& [local_rank, rank] : ranks_) rank.process.signal_group(signo);
}

void ProcessRunner::tell_ranks(std::string_view verb, int64_t value) {
  for (auto& [local_rank, rank] : ranks_) rank.control.send(verb, value);
}

bool ProcessRunner::is_stopped(int local_rank) const {
  const char state = process_state(ranks_.at(local_rank).pid);
  return state == 'T' || state == 't' || state == 'D';
}

std::optional<int> ProcessRunner::rank_of(pid_t pid) const {
  const pid_t session = ::getsid(pid);
  for (const auto& [local_rank, rank] : ranks_) {
    if (rank.process.running() && rank.process.pid() == session) return local_rank;
  }
  return std::nullopt;
}

std::vector<std::string> ProcessRunner::last_stderr_lines(int local_rank, size_t count) {
  output_.drain();
  return output_.last_lines(local_rank, count);
}

}  // namespace cxxrun
