// Runs a job on this node: joins, starts the ranks, ends them when one fails or a signal asks for it, restarts, and tells how
// it went. A state machine (supervisor_table) that is driven from outside: it waits for nothing but the rendezvous. Owns no
// process; all that it does to the world goes through the references, which outlive it. Main thread. Throws Error when ranks
// cannot be started or nodes cannot meet.
#pragma once

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/child_runner.hpp"
#include "launcher/rank_plan.hpp"
#include "launcher/rendezvous/rendezvous.hpp"
#include "launcher/report/event_log.hpp"
#include "launcher/report/job_outcome.hpp"
#include "launcher/supervisor_clock.hpp"
#include "launcher/supervisor_table.hpp"

namespace cxxrun {

struct SupervisorWorld {
  Rendezvous& rendezvous;
  ChildRunner& runner;
  SupervisorClock& clock;
  LogLine log;
  int cancel_fd = -1;  // readable: stop waiting for other nodes and look at it
  std::function<int64_t()> oom_kills = [] { return int64_t{0}; };
  EventLog* events = nullptr;
};

class Supervisor {
 public:
  // `log_folder`: where ranks' error files and logs go; "" = nowhere.
  Supervisor(const LaunchPlan& plan, std::string log_folder, SupervisorWorld world);

  void start();
  void on_children_changed();  // SIGCHLD
  void on_signal(int signo);
  void on_guardian_lost();
  void on_interruption(Interruption interruption);  // of the rendezvous
  void on_timer(Event event) { handle(event); }

  State state() const { return state_; }
  bool done() const { return state_ == State::kDone; }
  bool stop_asked() const { return stop_signal_ != 0; }  // by a signal, or by the guardian's end
  int exit_code() const;
  JobOutcome outcome();

 private:
  struct Rank {
    RankPlan plan;
    RankOutcome outcome;
  };

  void handle(Event event);
  void carry_out(Action action);
  void join();
  void pause();
  void fail(size_t culprit);
  void look_for_hang();
  void start_ranks();
  void record(const RankExit& exit);
  void signal_ranks(int signo);
  void sweep(int signo);
  void warn_stragglers();
  void finish();
  bool all_ended() const;

  const LaunchPlan& plan_;
  std::string log_folder_;
  SupervisorWorld world_;
  State state_ = State::kJoining;
  int attempt_ = 0;
  RendezvousResult meeting_;
  std::vector<Rank> ranks_;
  SupervisorClock::TimePoint started_;
  int64_t oom_kills_at_start_ = 0;
  std::optional<size_t> culprit_;  // the first rank to fail in this attempt
  int signal_ = 0;  // the one being handled
  int stop_signal_ = 0;  // the one that ended the job
  bool suspended_ = false;
  SupervisorClock::TimePoint resumed_;
  int quick_failures_ = 0;  // attempts in a row that ended soon after their start
  int endings_ = 0;  // of ranks, in this attempt
  bool killing_leftovers_ = false;
  bool peer_node_failed_ = false;
};

}  // namespace cxxrun
