#include "launcher/signal_source.hpp"

#include <utility>

#include "common/error.hpp"

namespace cxxrun {

SignalSource::SignalSource(std::set<int> stop_signals) : stop_signals_(std::move(stop_signals)) {
  // An ignored SIGCHLD, which exec passes on, would make the kernel reap children unseen.
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  ::sigemptyset(&handled_);
  std::set<int> wanted = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};
  wanted.insert(stop_signals_.begin(), stop_signals_.end());
  for (const int signo : wanted) {
    struct sigaction action {};
    ::sigaction(signo, nullptr, &action);
    // Blocked signals are queued even if they are ignored, so these must stay out of the set.
    if (action.sa_handler != SIG_IGN) ::sigaddset(&handled_, signo);
  }
  if (::sigprocmask(SIG_BLOCK, &handled_, &original_mask_) != 0) throw errno_error("cannot block signals");
  reopen();
}

void SignalSource::reopen() {
  fd_.reset(::signalfd(-1, &handled_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw errno_error("cannot create a signalfd");
}

std::optional<int> SignalSource::next() {
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace cxxrun
