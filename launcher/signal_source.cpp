#include "launcher/signal_source.hpp"

#include "common/error.hpp"

namespace cxxrun {

bool stops_job(int signo) { return signo == SIGTERM || signo == SIGINT || signo == SIGQUIT || signo == SIGHUP; }

SignalSource::SignalSource() {
  // An ignored SIGCHLD, which exec passes on, would make the kernel reap children unseen.
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  ::sigemptyset(&handled_);
  for (const int signo : {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
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
