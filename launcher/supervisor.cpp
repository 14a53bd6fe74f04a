#include "launcher/supervisor.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "common/control_channel.hpp"
#include "common/error.hpp"
#include "launcher/error_file.hpp"
#include "launcher/signal_source.hpp"

namespace cxxrun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLeftoversGrace{1000};
constexpr milliseconds kKillWait{5000};  // only uninterruptible sleep outlasts SIGKILL
constexpr milliseconds kStragglerWait{5000};

}  // namespace

Supervisor::Supervisor(const LaunchPlan& plan, std::string error_folder, SupervisorWorld world)
    : plan_(plan), error_folder_(std::move(error_folder)), world_(std::move(world)) {}

void Supervisor::start() { join(); }

void Supervisor::on_children_changed() {
  for (const RankExit& exit : world_.runner.take_exits()) record(exit);
  if (state_ == State::kRunning && culprit_) {
    handle(attempt_ < plan_.options.max_restarts ? Event::kRankFailedWithRestartsLeft : Event::kRankFailed);
  }
  if (state_ == State::kSweeping || state_ == State::kSweepingToRestart) {
    if (!world_.runner.anything_left()) {
      handle(Event::kNothingLeft);
    } else if (killing_leftovers_) {
      world_.runner.signal_leftovers(SIGKILL);  // those that were adopted since
    }
  } else if (!ranks_.empty() && all_ended()) {
    handle(state_ == State::kRunning ? Event::kAllSucceeded : Event::kAllGone);
  }
}

void Supervisor::on_signal(int signo) {
  signal_ = signo;
  if (!stops_job(signo)) {
    handle(Event::kPassSignal);
  } else if (stop_signal_ != 0) {
    handle(Event::kStopAgain);
  } else {
    stop_signal_ = signo;
    handle(Event::kStopSignal);
  }
}

void Supervisor::on_guardian_lost() {
  if (stop_signal_ == 0) stop_signal_ = SIGKILL;  // that is how one loses it
  handle(Event::kGuardianLost);
}

void Supervisor::handle(Event event) {
  const Transition step = transition(state_, event);
  state_ = step.next;
  carry_out(step.action);
}

void Supervisor::carry_out(Action action) {
  SupervisorClock& clock = world_.clock;
  switch (action) {
    case Action::kNone:
      return;
    case Action::kJoin:
      ++attempt_;
      world_.log(fmt::format("rank {} failed ({}): starting all ranks again, restart {} of {}",
                             ranks_[*culprit_].outcome.rank, describe(*ranks_[*culprit_].outcome.status), attempt_,
                             plan_.options.max_restarts));
      return join();
    case Action::kStartRanks:
      return start_ranks();
    case Action::kStopPeers:
      world_.runner.tell_ranks(kPeerFailed, ranks_[*culprit_].outcome.rank);
      signal_ranks(SIGTERM);
      return clock.arm(Event::kGraceExpired, plan_.options.shutdown_timeout);
    case Action::kForwardSignal:
      signal_ranks(signal_);
      return clock.arm(Event::kGraceExpired, plan_.options.shutdown_timeout);
    case Action::kPassOn:
      // A group without a terminal's shell above it ("orphaned") ignores SIGTSTP, so the ranks get the one that always stops.
      if (signal_ == SIGTSTP || signal_ == SIGCONT) suspended_ = signal_ == SIGTSTP;
      return world_.runner.signal_ranks(signal_ == SIGTSTP ? SIGSTOP : signal_);
    case Action::kKillRanks:
      for (Rank& rank : ranks_) rank.outcome.killed_by_us |= !rank.outcome.status;
      world_.runner.signal_ranks(SIGKILL);
      clock.disarm(Event::kGraceExpired);
      return clock.arm(Event::kKillExpired, kKillWait);
    case Action::kSweep:
      clock.arm(Event::kSweepExpired, kLeftoversGrace);
      return sweep(SIGTERM);
    case Action::kKillLeftovers:
      killing_leftovers_ = true;
      clock.arm(Event::kKillExpired, kKillWait);
      return sweep(SIGKILL);
    case Action::kWarnStragglers:
      return warn_stragglers();
    case Action::kGiveUp:
      world_.log(
          fmt::format("SIGKILL has no effect on {}; leaving it to the kernel", world_.runner.describe_leftovers()));
      [[fallthrough]];
    case Action::kFinish:
      return finish();
  }
}

void Supervisor::join() {
  const auto meeting = world_.rendezvous.join(attempt_, world_.cancel_fd);
  if (!meeting) return;  // what cancelled it comes as the next event
  meeting_ = *meeting;
  handle(Event::kJoined);
}

void Supervisor::start_ranks() {
  for (const Event event : {Event::kGraceExpired, Event::kSweepExpired, Event::kKillExpired}) {
    world_.clock.disarm(event);
  }
  culprit_.reset();
  killing_leftovers_ = false;
  oom_kills_at_start_ = world_.oom_kills();
  started_ = world_.clock.now();
  ranks_.clear();
  const std::string folder = error_folder_.empty() ? "" : fmt::format("{}/attempt_{}", error_folder_, attempt_);
  const std::vector<RankPlan> plans = plan_ranks(plan_, meeting_, attempt_, folder);
  world_.runner.start(plans);
  for (const RankPlan& plan : plans) {
    ranks_.push_back(
        {plan, {.rank = plan.rank, .local_rank = plan.local_rank, .pid = world_.runner.pid(plan.local_rank)}});
  }
}

void Supervisor::record(const RankExit& exit) {
  RankOutcome& outcome = ranks_[static_cast<size_t>(exit.local_rank)].outcome;
  outcome.status = exit.status;
  outcome.ran_for = std::chrono::duration_cast<milliseconds>(world_.clock.now() - started_);
  outcome.last_step = world_.runner.last_step(exit.local_rank);
  if (exit.status.success()) {
    if (state_ == State::kRunning && !all_ended()) world_.clock.arm(Event::kStragglersDue, kStragglerWait);
  } else if (state_ == State::kRunning && !culprit_) {
    culprit_ = static_cast<size_t>(exit.local_rank);
  }
}

void Supervisor::signal_ranks(int signo) {
  for (Rank& rank : ranks_) rank.outcome.asked_to_end |= !rank.outcome.status;
  world_.runner.signal_ranks(signo);
  if (suspended_) world_.runner.signal_ranks(SIGCONT);  // a stopped process cannot answer
  suspended_ = false;
}

void Supervisor::sweep(int signo) {
  world_.runner.signal_leftovers(signo);
  if (!world_.runner.anything_left()) handle(Event::kNothingLeft);
}

void Supervisor::warn_stragglers() {
  std::vector<int> ended, running;
  for (const Rank& rank : ranks_) (rank.outcome.status ? ended : running).push_back(rank.outcome.rank);
  if (running.empty()) return;
  world_.log(fmt::format("warning: {} ended with exit code 0 while {} still run{}", name_ranks(ended),
                         name_ranks(running), running.size() == 1 ? "s" : ""));
}

void Supervisor::finish() {
  const bool success = exit_code() == 0;
  switch (world_.rendezvous.finish(success, world_.cancel_fd)) {
    case Ending::kTogether:
      return;
    case Ending::kPeerFailed:
      peer_node_failed_ = true;
      return;
    case Ending::kUnknown:
      if (success) world_.log("warning: the ranks here succeeded, but the other nodes did not say how they ended");
  }
}

bool Supervisor::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.outcome.status.has_value(); });
}

int Supervisor::exit_code() const {
  int code = 0;
  if (stop_signal_ != 0) {
    code = 128 + stop_signal_;
  } else if (culprit_) {
    code = ranks_[*culprit_].outcome.status->shell_code();
  } else if (peer_node_failed_ || !all_ended()) {
    code = 1;
  }
  return code != 0 && plan_.options.torchrun_exit_codes ? 1 : code;
}

std::string Supervisor::report() {
  std::string text;
  if (culprit_) {
    JobOutcome job{.program = plan_.options.program,
                   .ranks = {},
                   .culprit = *culprit_,
                   .oom_kills = world_.oom_kills() - oom_kills_at_start_,
                   .attempts = attempt_ + 1};
    for (const Rank& rank : ranks_) job.ranks.push_back(rank.outcome);
    RankOutcome& first = job.ranks[*culprit_];
    first.last_lines = world_.runner.last_stderr_lines(first.local_rank, kReportedStderrLines);
    first.message = read_error_file(ranks_[*culprit_].plan.error_file);
    text = format_failure_report(job);
  }
  if (peer_node_failed_) text += "cxxrun: the ranks here succeeded, but those of another node failed: see its output\n";
  if (stop_signal_ != 0) {
    const auto killed =
        std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.outcome.killed_by_us; });
    text += fmt::format("cxxrun: stopped by {} from outside{}\n", signal_name(stop_signal_),
                        killed ? fmt::format("; {} of {} ranks had to be killed", killed, ranks_.size()) : "");
  }
  return text;
}

}  // namespace cxxrun
