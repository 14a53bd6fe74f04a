#include "launcher/supervise.hpp"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>

#include "common/atomic_file.hpp"
#include "common/worker_env.hpp"
#include "launcher/devices/cgroup.hpp"
#include "launcher/event_loop.hpp"
#include "launcher/guardian.hpp"
#include "launcher/output/output_router.hpp"
#include "launcher/process_runner.hpp"
#include "launcher/rendezvous/this_machine.hpp"
#include "launcher/report/event_log.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/report/report_json.hpp"
#include "launcher/report/torchrun_table.hpp"
#include "launcher/supervisor.hpp"
#include "launcher/watchdog_fifo.hpp"

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

  std::function<void(Interruption)> on_interruption;

  std::optional<RendezvousResult> join(int64_t attempt, int cancel_fd) override {
    unwatch();
    auto result = inner_->join(attempt, cancel_fd);
    watched_ = inner_->fd();
    if (watched_ < 0) return result;
    loop_.watch(watched_, EPOLLIN, [this] {
      inner_->on_ready();
      on_interruption(inner_->interruption());
    });
    return result;
  }
  Ending finish(bool success, int cancel_fd) override {
    unwatch();
    return inner_->finish(success, cancel_fd);
  }
  void announce_failure(bool restarts) override { inner_->announce_failure(restarts); }

 private:
  void unwatch() {
    if (watched_ >= 0) loop_.forget(watched_);
    watched_ = -1;
  }

  EventLoop& loop_;
  std::unique_ptr<Rendezvous> inner_;
  int watched_ = -1;
};

// What torchrun calls a job: the script, if Python runs one.
std::string job_name(const LaunchPlan& plan) {
  if (plan.options.run_path) return "run_script_path";
  return plan.options.program;
}

// Reports for programs: they may not be told by what is on the console, and must not change how the job ends.
void or_warn(const LogLine& log, const std::function<void()>& write) {
  try {
    write();
  } catch (const std::exception& error) {
    log(fmt::format("warning: {}", error.what()));
  }
}

void write_report_file(const LaunchPlan& plan, const JobOutcome& job, const LogLine& log) {
  const std::string& path = plan.options.report_file;
  if (path.empty()) return;
  or_warn(log, [&] { write_file_atomically(path, format_report_json(job, plan, RankOutcome::WallTime::clock::now())); });
}

void pass_error_file_on(const JobOutcome& job, const LogLine& log) {
  const auto to = environment_variable("TORCHELASTIC_ERROR_FILE");
  if (!to || to->empty() || !job.culprit) return;
  const RankOutcome& culprit = job.ranks[*job.culprit];
  if (culprit.error_file.empty()) return;
  or_warn(log, [&] { copy_error_file(culprit.error_file, *to, culprit.status->python_code()); });
}

std::string final_report(const LaunchPlan& plan, const JobOutcome& job) {
  if (plan.options.report_style == ReportStyle::kTorchrun && job.culprit && job.ranks[*job.culprit].status) {
    return format_torchrun_table(job, job_name(plan), host_name());
  }
  return format_failure_report(job);
}

}  // namespace

RendezvousOptions rendezvous_options(const LaunchPlan& plan) {
  const LauncherOptions& options = plan.options;
  return {.run_id = options.run_id,
          .nodes = options.max_nodes,
          .min_nodes = options.min_nodes,
          .node_rank = options.node_rank,
          .local_world_size = plan.local_ranks,
          .role = options.role,
          .master_addr = options.master_addr,
          .port = {.port = options.master_port, .hard = options.port_is_hard},
          .agent_store = options.agent_store ? AgentStore::kOn : AgentStore::kOff,
          .conf = options.rdzv_conf,
          .local_addr = options.local_addr,
          .log = {}};
}

int supervise(const LaunchPlan& plan, const std::string& log_folder, ControlChannel guardian, SignalSource& signals) {
  EventLoop loop;
  OutputRouter output(loop, plan.options.output, plan.options.role);
  const LogLine log = [&](const std::string& text) { output.write("cxxrun: " + text); };

  RendezvousOptions meeting = rendezvous_options(plan);
  meeting.log = log;
  WatchedRendezvous rendezvous(
      loop, make_rendezvous(plan.options.max_nodes == 1 ? "single_node" : plan.options.rdzv_backend, std::move(meeting)));
  ProcessRunner runner(loop, output, guardian, plan.program.path, signals.original_mask());
  Supervisor* events = nullptr;
  LoopClock clock(loop, [&](Event event) { events->on_timer(event); });
  EventLog event_log(plan, host_name(), [&](const std::string& line) { output.write(line); });
  Supervisor supervisor(plan, log_folder,
                        {.rendezvous = rendezvous,
                         .runner = runner,
                         .clock = clock,
                         .log = log,
                         .cancel_fd = guardian.fd(),
                         .oom_kills = [] { return cgroup_oom_kills(); },
                         .events = plan.options.event_log_handler == "console" ? &event_log : nullptr});
  events = &supervisor;
  rendezvous.on_interruption = [&](Interruption interruption) { supervisor.on_interruption(interruption); };

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

  std::optional<WatchdogFifo> watchdog;
  if (!plan.watchdog_file.empty()) {
    watchdog.emplace(loop, plan.watchdog_file, [&](const Overrun& overrun) {
      const auto rank = runner.rank_of(overrun.pid);  // a pid that is not ours is none of our business
      if (!rank) return;
      log(fmt::format("local rank {} (pid {}) is still in '{}' after its deadline: {}", *rank, overrun.pid, overrun.scope,
                      signal_name(overrun.signo)));
      ::kill(overrun.pid, overrun.signo);
    });
  }

  try {
    supervisor.start();
    while (!supervisor.done()) loop.run_once();
  } catch (const std::exception& error) {
    JobOutcome job = supervisor.outcome();
    job.error = error.what();
    job.exit_code = 1;
    write_report_file(plan, job, log);
    throw;
  }
  if (!guardian.closed()) read_guardian();  // what cut the last wait for other nodes short
  const JobOutcome job = supervisor.outcome();
  write_report_file(plan, job, log);
  pass_error_file_on(job, log);
  output.drain();
  output.write(final_report(plan, job));
  // Whoever reads slowly gets everything, as from the ranks themselves. Whoever stops us need not wait for that.
  while (output.has_backlog() && !supervisor.stop_asked()) loop.run_once();
  output.wait_for_readers();
  return job.exit_code;
}

}  // namespace cxxrun
