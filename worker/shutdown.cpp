#include "worker/shutdown.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "common/error.hpp"
#include "common/log.hpp"

namespace vla {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal_number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal_number);
  // nohup's ignored HUP stays ignored.
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

ShutdownWatcher::ShutdownWatcher(int control_fd)
    // A duplicate: beats are sent from another thread through the original.
    : control_(control_fd < 0 ? -1 : ::fcntl(control_fd, F_DUPFD_CLOEXEC, 0)), quit_(::eventfd(0, EFD_CLOEXEC)) {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC));
  if (!signals_ || !quit_) throw cxxrun::errno_error("cannot watch signals");
  thread_ = std::thread([this] { watch(); });
}

ShutdownWatcher::~ShutdownWatcher() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(quit_.get(), &one, sizeof one);
  thread_.join();
}

void ShutdownWatcher::on_signal(int signal_number) {
  if (signal_number == SIGUSR1 || signal_number == SIGUSR2) {
    save_requested_ = true;
  } else if (stop_signal_.exchange(signal_number) == 0) {
    cxxrun::log_info("signal {}: saving and stopping after this step; once more stops at once", signal_number);
  } else {
    ::_exit(128 + signal_number);
  }
}

void ShutdownWatcher::watch() {
  for (;;) {
    pollfd fds[] = {{quit_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}, {control_.fd(), POLLIN, 0}};
    if (::poll(fds, 3, -1) < 0) continue;
    if (fds[0].revents) return;
    // The launcher's news comes first: it tells a peer's failure before it sends TERM.
    while (const auto message = control_.poll()) {
      if (message->verb == cxxrun::kPeerFailed) {
        const std::string who = message->value < 0 ? "another node" : fmt::format("rank {}", message->value);
        cxxrun::log_warning("{} failed or starts again: leaving without saving", who);
        ::_exit(128 + SIGTERM);
      }
    }
    signalfd_siginfo info;
    if (fds[1].revents && ::read(signals_.get(), &info, sizeof info) == sizeof info) on_signal(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace vla
