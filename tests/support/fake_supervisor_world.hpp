// What a Supervisor works on, without processes, time or network. FakeClock advances by hand; FakeChildRunner keeps its ranks
// alive until a test (or a signal, for those that obey) ends them; FakeRendezvous meets at once.
#pragma once

#include <csignal>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/child_runner.hpp"
#include "launcher/supervisor_clock.hpp"

namespace cxxrun::testing {

class FakeClock : public SupervisorClock {
 public:
  TimePoint now() const override { return now_; }
  void arm(Event event, std::chrono::nanoseconds after) override { timers_[event] = now_ + after; }
  void disarm(Event event) override { timers_.erase(event); }

  std::function<void(Event)> on_expiry;
  void advance(std::chrono::nanoseconds by) {
    const TimePoint end = now_ + by;
    for (;;) {
      auto next = timers_.end();
      for (auto timer = timers_.begin(); timer != timers_.end(); ++timer) {
        if (timer->second <= end && (next == timers_.end() || timer->second < next->second)) next = timer;
      }
      if (next == timers_.end()) break;
      now_ = next->second;
      const Event event = next->first;
      timers_.erase(next);
      on_expiry(event);
    }
    now_ = end;
  }

 private:
  TimePoint now_{};
  std::map<Event, TimePoint> timers_;
};

class FakeChildRunner : public ChildRunner {
 public:
  // How ranks answer signals: obedient ones die of them; stubborn ones only of SIGKILL; dead-locked ones of none.
  enum class Manner { kObedient, kStubborn, kUninterruptible };
  Manner manner = Manner::kObedient;
  int leftovers = 0;  // processes that ranks have left behind
  bool leftovers_obey = true;  // SIGTERM
  std::vector<std::vector<RankPlan>> starts;  // of every attempt
  std::vector<int> signals;  // sent to ranks
  std::map<int, Beat> beats;  // the last one of each local rank
  std::set<int> stopped;  // local ranks that sleep uninterruptibly
  std::vector<std::pair<std::string, int64_t>> told;

  // The rank ends; the supervisor still has to be told that children changed.
  void end(int local_rank, ExitStatus status) {
    if (alive_.erase(local_rank) > 0) exits_.push_back({local_rank, status});
  }

  void start(const std::vector<RankPlan>& plans) override {
    starts.push_back(plans);
    for (const RankPlan& plan : plans) alive_[plan.local_rank] = 1000 + plan.local_rank;
  }
  std::vector<RankExit> take_exits() override { return std::exchange(exits_, {}); }
  void signal_ranks(int signo) override {
    signals.push_back(signo);
    const bool fatal = signo == SIGKILL
                           ? manner != Manner::kUninterruptible
                           : manner == Manner::kObedient && signo != SIGSTOP && signo != SIGCONT && signo != SIGUSR1;
    if (!fatal) return;
    for (const auto& [local_rank, pid] : alive_) exits_.push_back({local_rank, {.signo = signo}});
    alive_.clear();
  }
  void tell_ranks(std::string_view verb, int64_t value) override { told.emplace_back(verb, value); }
  bool anything_left() const override { return !alive_.empty() || leftovers > 0; }
  void signal_leftovers(int signo) override {
    if (signo == SIGKILL || leftovers_obey) leftovers = 0;
  }
  std::string describe_leftovers() const override { return "1000 rank (state D)"; }
  int64_t pid(int local_rank) const override { return 1000 + local_rank; }
  std::vector<std::string> last_stderr_lines(int, size_t) override { return {"boom"}; }
  bool is_stopped(int local_rank) const override { return stopped.contains(local_rank); }
  std::optional<Beat> last_beat(int local_rank) const override {
    const auto beat = beats.find(local_rank);
    return beat == beats.end() ? std::nullopt : std::optional(beat->second);
  }

 private:
  std::map<int, int> alive_;
  std::vector<RankExit> exits_;
};

class FakeRendezvous : public Rendezvous {
 public:
  bool everybody_comes = true;
  Ending ending = Ending::kTogether;
  std::vector<int64_t> joins;
  std::vector<bool> finishes;
  std::vector<bool> announced;  // failures; whether a restart follows

  std::optional<RendezvousResult> join(int64_t attempt, int) override {
    joins.push_back(attempt);
    if (!everybody_comes) return std::nullopt;
    return RendezvousResult{.global_world_size = 3, .role_world_size = 3, .master_addr = "127.0.0.1", .master_port = 1};
  }
  void announce_failure(bool restarts) override { announced.push_back(restarts); }
  Ending finish(bool success, int) override {
    finishes.push_back(success);
    return ending;
  }
};

}  // namespace cxxrun::testing
