#include "launcher/supervise.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "launcher/cgroup.hpp"
#include "launcher/event_loop.hpp"
#include "launcher/guardian.hpp"
#include "launcher/process_runner.hpp"
#include "launcher/stderr_relay.hpp"
#include "launcher/supervisor.hpp"

namespace cxxrun {
namespace {

// A signal that is sent to a whole job (by a scheduler, by pkill) reaches both processes of cxxrun, and the guardian passes
// its own on. That is one signal, not two.
class SignalTally {
 public:
  bool is_new(int signo, bool forwarded) {
    Counts& counts = counts_[signo];
    ++(forwarded ? counts.forwarded : counts.direct);
    const int seen = std::max(counts.forwarded, counts.direct);
    return seen > std::exchange(counts.handled, seen);
  }

 private:
  struct Counts {
    int forwarded = 0, direct = 0, handled = 0;
  };
  std::map<int, Counts> counts_;
};

// Keeps the loop watching whatever descriptor the rendezvous has; every join may change it.
class WatchedRendezvous : public Rendezvous {
 public:
  WatchedRendezvous(EventLoop& loop, std::unique_ptr<Rendezvous> inner) : loop_(loop), inner_(std::move(inner)) {}

  std::optional<RendezvousResult> join(int64_t attempt, int cancel_fd) override {
    unwatch();
    auto result = inner_->join(attempt, cancel_fd);
    watched_ = inner_->fd();
    if (watched_ >= 0) loop_.watch(watched_, EPOLLIN, [this] { inner_->on_ready(); });
    return result;
  }
  Ending finish(bool success, int cancel_fd) override {
    unwatch();
    return inner_->finish(success, cancel_fd);
  }

 private:
  void unwatch() {
    if (watched_ >= 0) loop_.forget(watched_);
    watched_ = -1;
  }

  EventLoop& loop_;
  std::unique_ptr<Rendezvous> inner_;
  int watched_ = -1;
};

}  // namespace

RendezvousOptions rendezvous_options(const LaunchPlan& plan) {
  const LauncherOptions& options = plan.options;
  return {.run_id = options.run_id,
          .nodes = options.max_nodes,
          .node_rank = options.node_rank,
          .local_world_size = plan.local_ranks,
          .role = options.role,
          .master_addr = options.master_addr,
          .port = {.port = options.master_port, .hard = options.port_is_hard},
          .agent_store = options.agent_store ? AgentStore::kOn : AgentStore::kOff,
          .log = {}};
}

int supervise(const LaunchPlan& plan, const std::string& error_folder, ControlChannel guardian, SignalSource& signals) {
  EventLoop loop;
  StderrRelay relay(loop, STDERR_FILENO);
  const LogLine log = [&](const std::string& text) { relay.write("cxxrun: " + text + "\n"); };

  RendezvousOptions meeting = rendezvous_options(plan);
  meeting.log = log;
  WatchedRendezvous rendezvous(
      loop, make_rendezvous(plan.options.max_nodes == 1 ? "single_node" : "static", std::move(meeting)));
  ProcessRunner runner(loop, relay, guardian, plan.program.path, signals.original_mask());
  Supervisor* events = nullptr;
  LoopClock clock(loop, [&](Event event) { events->on_timer(event); });
  Supervisor supervisor(plan, error_folder,
                        {.rendezvous = rendezvous,
                         .runner = runner,
                         .clock = clock,
                         .log = log,
                         .cancel_fd = guardian.fd(),
                         .oom_kills = cgroup_oom_kills});
  events = &supervisor;

  SignalTally tally;
  const auto read_guardian = [&, fd = guardian.fd()] {
    while (const auto message = guardian.poll()) {
      const int signo = static_cast<int>(message->value);
      if (message->verb == kSignal && tally.is_new(signo, /*forwarded=*/true)) supervisor.on_signal(signo);
    }
    if (guardian.closed()) {
      loop.forget(fd);
      supervisor.on_guardian_lost();
    }
  };
  loop.watch(guardian.fd(), EPOLLIN, read_guardian);
  loop.watch(signals.fd(), EPOLLIN, [&] {
    while (const auto signo = signals.next()) {
      if (*signo == SIGCHLD) {
        supervisor.on_children_changed();
      } else if (tally.is_new(*signo, /*forwarded=*/false)) {
        supervisor.on_signal(*signo);
      }
    }
  });

  supervisor.start();
  while (!supervisor.done()) loop.run_once();
  if (!guardian.closed()) read_guardian();  // what cut the last wait for other nodes short
  relay.drain();
  relay.write(supervisor.report());
  relay.drain();
  return supervisor.exit_code();
}

}  // namespace cxxrun
