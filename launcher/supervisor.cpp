#include "launcher/supervisor.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "common/control_channel.hpp"
#include "common/error.hpp"
#include "launcher/report/error_file.hpp"
#include "launcher/report/failure_report.hpp"

namespace cxxrun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLeftoversGrace{1000};
constexpr milliseconds kKillWait{5000};  // only uninterruptible sleep outlasts SIGKILL
constexpr milliseconds kStragglerWait{5000};
constexpr milliseconds kQuickFailure{10'000};
constexpr milliseconds kLongestPause{1000};
constexpr int kHungExitCode = 124;  // timeout(1) says it so

// None before the first restart, then 0.1 s, doubled for every attempt that ends as soon.
milliseconds pause_after(int quick_failures) {
  return quick_failures < 2 ? milliseconds(0) : std::min(milliseconds(100 << std::min(quick_failures - 2, 8)), kLongestPause);
}

}  // namespace

Supervisor::Supervisor(const LaunchPlan& plan, std::string log_folder, SupervisorWorld world)
    : plan_(plan), log_folder_(std::move(log_folder)), world_(std::move(world)) {}

void Supervisor::start() { join(); }

void Supervisor::on_children_changed() {
  std::optional<size_t> failed;
  for (const RankExit& exit : world_.runner.take_exits()) {
    record(exit);
    if (!exit.status.success() && !failed) failed = static_cast<size_t>(exit.local_rank);
  }
  if (failed && state_ == State::kRunning) fail(*failed);
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
  if (!plan_.options.stop_signals.contains(signo)) {
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

void Supervisor::on_interruption(Interruption interruption) {
  if (state_ != State::kRunning || interruption == Interruption::kNone) return;
  peer_node_failed_ = interruption == Interruption::kPeerFailed;
  handle(peer_node_failed_ ? Event::kPeerNodeFailed : Event::kNodesChanged);
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
    case Action::kPause:
      return pause();
    case Action::kJoin:
      attempt_ += culprit_ ? 1 : 0;  // other nodes' reasons use up none of our restarts
      return join();
    case Action::kStartRanks:
      return start_ranks();
    case Action::kStopPeers:
      if (culprit_) world_.rendezvous.announce_failure(state_ == State::kRestarting);
      world_.runner.tell_ranks(kPeerFailed, culprit_ ? ranks_[*culprit_].outcome.rank : -1);
      signal_ranks(SIGTERM);
      return clock.arm(Event::kGraceExpired, plan_.options.shutdown_timeout);
    case Action::kForwardSignal:
      signal_ranks(signal_);
      return clock.arm(Event::kGraceExpired, plan_.options.shutdown_timeout);
    case Action::kPassOn:
      // A group without a terminal's shell above it ("orphaned") ignores SIGTSTP, so the ranks get the one that always stops.
      if (signal_ == SIGTSTP || signal_ == SIGCONT) suspended_ = signal_ == SIGTSTP;
      if (signal_ == SIGCONT) resumed_ = clock.now();
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
    case Action::kLookForHang:
      return look_for_hang();
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
  if (world_.events) {
    world_.events->met(meeting_, attempt_);
    world_.events->node("RENDEZVOUS");
  }
  handle(Event::kJoined);
}

void Supervisor::pause() {
  if (!culprit_) {
    world_.log("the nodes of this job have changed: starting all ranks again");
    return handle(Event::kPauseOver);
  }
  const milliseconds pause = pause_after(quick_failures_);
  world_.log(fmt::format("rank {} failed ({}): starting all ranks again{}, restart {} of {}",
                         ranks_[*culprit_].outcome.rank, describe_culprits_end(outcome()),
                         pause.count() ? fmt::format(" in {:.1f} s", static_cast<double>(pause.count()) / 1000) : "",
                         attempt_ + 1, plan_.options.max_restarts));
  if (pause.count() == 0) return handle(Event::kPauseOver);
  world_.clock.arm(Event::kPauseOver, pause);
}

void Supervisor::start_ranks() {
  for (const Event event : {Event::kGraceExpired, Event::kSweepExpired, Event::kKillExpired}) {
    world_.clock.disarm(event);
  }
  culprit_.reset();
  killing_leftovers_ = false;
  endings_ = 0;
  oom_kills_at_start_ = world_.oom_kills();
  started_ = resumed_ = world_.clock.now();
  ranks_.clear();
  const std::string folder = log_folder_.empty() ? "" : fmt::format("{}/attempt_{}", log_folder_, attempt_);
  const std::vector<RankPlan> plans = plan_ranks(plan_, meeting_, attempt_, folder);
  world_.runner.start(plans);
  for (const RankPlan& plan : plans) {
    ranks_.push_back(
        {plan, {.rank = plan.rank, .local_rank = plan.local_rank, .pid = world_.runner.pid(plan.local_rank)}});
    if (world_.events) world_.events->rank("START", ranks_.back().outcome);
  }
  if (plan_.options.hang_timeout) world_.clock.arm(Event::kHangDue, *plan_.options.hang_timeout);
}

void Supervisor::fail(size_t culprit) {
  culprit_ = culprit;
  quick_failures_ = world_.clock.now() - started_ < kQuickFailure ? quick_failures_ + 1 : 0;
  handle(attempt_ < plan_.options.max_restarts ? Event::kRankFailedWithRestartsLeft : Event::kRankFailed);
}

// When one rank hangs, the others wait for it and fall silent too: it is the one that came least far, is stopped, or fell
// silent first.
void Supervisor::look_for_hang() {
  const auto limit = std::chrono::nanoseconds(*plan_.options.hang_timeout);
  std::chrono::nanoseconds longest{0};
  std::optional<size_t> hung;
  std::tuple<int64_t, bool, SupervisorClock::TimePoint> least;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto beat = world_.runner.last_beat(ranks_[i].plan.local_rank);
    if (ranks_[i].outcome.status || !beat || suspended_) continue;
    const auto silent_for = world_.clock.now() - std::max(beat->time, resumed_);
    longest = std::max<std::chrono::nanoseconds>(longest, silent_for);
    const std::tuple progress{beat->step, !world_.runner.is_stopped(ranks_[i].plan.local_rank), beat->time};
    // Peers beat within a step's time of each other, so that one may be silent for long enough a moment before the culprit is.
    if (silent_for >= limit / 2 && (!hung || progress < least)) {
      hung = i;
      least = progress;
    }
  }
  if (longest < limit) return world_.clock.arm(Event::kHangDue, limit - longest);
  RankOutcome& outcome = ranks_[*hung].outcome;
  outcome.silent_for = std::chrono::duration_cast<milliseconds>(world_.clock.now() - std::max(std::get<2>(least), resumed_));
  outcome.ran_for = std::chrono::duration_cast<milliseconds>(world_.clock.now() - started_);
  outcome.last_step = std::get<0>(least);
  fail(*hung);
}

void Supervisor::record(const RankExit& exit) {
  RankOutcome& outcome = ranks_[static_cast<size_t>(exit.local_rank)].outcome;
  outcome.status = exit.status;
  outcome.ended_at = RankOutcome::WallTime::clock::now();
  outcome.order = endings_++;
  const std::string& error_file = ranks_[static_cast<size_t>(exit.local_rank)].plan.error_file;
  if (!exit.status.success()) outcome.error = read_error_file(error_file);
  if (!outcome.error.message.empty()) outcome.error_file = error_file;
  if (!outcome.silent_for) outcome.ran_for = std::chrono::duration_cast<milliseconds>(world_.clock.now() - started_);
  if (const auto beat = world_.runner.last_beat(exit.local_rank)) outcome.last_step = beat->step;
  if (exit.status.success() && state_ == State::kRunning && !all_ended()) {
    world_.clock.arm(Event::kStragglersDue, kStragglerWait);
  }
  if (world_.events) {
    const bool asked = outcome.asked_to_end && !outcome.silent_for;
    world_.events->rank(exit.status.success() ? "SUCCEEDED" : asked ? "TERMINATED" : "FAILED", outcome);
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
  if (world_.events) world_.events->node(success ? "SUCCEEDED" : "FAILED");
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
    const RankOutcome& culprit = ranks_[*culprit_].outcome;
    code = culprit.silent_for ? kHungExitCode : culprit.status ? culprit.status->shell_code() : 1;
  } else if (peer_node_failed_ || !all_ended()) {
    code = 1;
  }
  return code != 0 && plan_.options.torchrun_exit_codes ? 1 : code;
}

JobOutcome Supervisor::outcome() {
  JobOutcome job{.program = plan_.options.program,
                 .ranks = {},
                 .culprit = culprit_,
                 .oom_kills = world_.oom_kills() - oom_kills_at_start_,
                 .attempts = attempt_ + 1,
                 .stop_signal = stop_signal_,
                 .peer_node_failed = peer_node_failed_,
                 .exit_code = exit_code()};
  for (const Rank& rank : ranks_) job.ranks.push_back(rank.outcome);
  if (culprit_) {
    RankOutcome& first = job.ranks[*culprit_];
    first.last_lines = world_.runner.last_stderr_lines(first.local_rank, kSearchedStderrLines);
  }
  return job;
}

}  // namespace cxxrun
