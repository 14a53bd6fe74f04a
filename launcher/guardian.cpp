#include "launcher/guardian.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <set>
#include <vector>

#include "common/error.hpp"
#include "launcher/event_loop.hpp"
#include "launcher/orphans.hpp"
#include "launcher/report/exit_status.hpp"

namespace cxxrun {
namespace {

constexpr std::chrono::seconds kKillWait{5};
constexpr int kPatience = 3;  // stop signals until the supervisor itself is taken for stuck

// Not fmt::print, which throws when nobody reads stderr any more.
void say(const std::string& text) { std::fputs(("cxxrun: " + text + "\n").c_str(), stderr); }

class Guardian {
 public:
  Guardian(SignalSource& signals, Orphans& orphans, ControlChannel supervisor, pid_t pid)
      : signals_(signals), orphans_(orphans), supervisor_(std::move(supervisor)), pid_(pid) {
    loop_.watch(signals_.fd(), EPOLLIN, [this] { on_signals(); });
    loop_.watch(supervisor_.fd(), EPOLLIN, [this] { on_messages(); });
  }

  int run() {
    while (!status_) loop_.run_once();
    end_leftovers();
    if (status_->signo != 0) {
      say(fmt::format("its supervisor (pid {}) was ended by {}; all ranks were ended with it", pid_,
                      signal_name(status_->signo)));
    }
    return status_->shell_code();
  }

 private:
  void on_signals() {
    while (const auto signo = signals_.next()) {
      if (*signo == SIGCHLD) {
        reap();
      } else if (signals_.stops_job(*signo)) {
        supervisor_.send(kSignal, *signo);
        if (++stops_ >= kPatience) ::kill(pid_, SIGKILL);
      } else if (sessions_.empty()) {
        held_.push_back(*signo);  // nobody to pass it on to yet
      } else {
        pass_on(*signo);
      }
    }
  }

  void pass_on(int signo) {
    supervisor_.send(kSignal, signo);
    if (signo == SIGTSTP) ::raise(SIGSTOP);  // and so does the shell see it; SIGCONT comes as an event
  }

  void on_messages() {
    const int fd = supervisor_.fd();
    while (const auto message = supervisor_.poll()) {
      const pid_t session = static_cast<pid_t>(message->value);
      if (message->verb == kRankStarted) {
        sessions_.insert(session);
        for (const int signo : std::exchange(held_, {})) pass_on(signo);
      } else if (message->verb == kRankEnded) {
        sessions_.erase(session);
      }
    }
    if (supervisor_.closed()) loop_.forget(fd);
  }

  void reap() {
    while (const auto pid = orphans_.next_ended()) {
      if (*pid == pid_) {
        on_messages();  // its last words
        int status = 0;
        ::waitpid(pid_, &status, 0);
        status_ = ExitStatus::from_wait(status);
      } else {
        // A rank that we adopted: while it is unreaped its number cannot belong to a stranger.
        if (sessions_.erase(*pid) > 0) ::kill(-*pid, SIGKILL);
        orphans_.reap(*pid);
      }
    }
  }

  void end_leftovers() {
    bool gave_up = false;
    Timer deadline(loop_, [&] { gave_up = true; });
    deadline.arm(kKillWait);
    while (orphans_.any_child_left() && !gave_up) {
      orphans_.signal_all(SIGKILL);
      loop_.run_once();  // what the next generation leaves is ours when its SIGCHLD is
    }
    if (gave_up) {
      say(fmt::format("SIGKILL has no effect on {}; leaving it to the kernel", orphans_.describe()));
    }
  }

  SignalSource& signals_;
  Orphans& orphans_;
  ControlChannel supervisor_;
  pid_t pid_;
  EventLoop loop_;
  std::set<pid_t> sessions_;
  std::vector<int> held_;
  int stops_ = 0;
  std::optional<ExitStatus> status_;
};

}  // namespace

int run_guarded(SignalSource& signals, const std::function<int(ControlChannel)>& supervise) {
  Orphans orphans;
  auto [ours, theirs] = ControlChannel::make_pair();
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw errno_error("cannot fork the supervisor");
  if (pid == 0) {
    ours = ControlChannel();
    ::setsid();
    ::prctl(PR_SET_NAME, "cxxrun-superv");
    signals.reopen();
    return supervise(ControlChannel(theirs.release()));
  }
  theirs.reset();
  return Guardian(signals, orphans, std::move(ours), pid).run();
}

}  // namespace cxxrun
