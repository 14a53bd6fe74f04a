#include "worker/shutdown.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "common/log.hpp"

namespace vla {
namespace {

// Where the handler puts the numbers of signals. Not a member: a handler knows nothing else.
std::atomic<int> signal_pipe = -1;
static_assert(std::atomic<int>::is_always_lock_free);

void note_signal(int signal_number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal_number);
  // A full pipe holds thousands of requests that nobody has read: one more says nothing new.
  [[maybe_unused]] const ssize_t written = ::write(signal_pipe, &byte, 1);
  errno = saved;
}

}  // namespace

// Handlers, not a signalfd: that sees only what every thread has blocked, and a TERM that reaches a library's thread with
// signals unblocked would end the process.
struct ShutdownWatcher::Handlers {
  Handlers() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw cxxrun::errno_error("cannot watch signals");
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
    signal_pipe = ends[1];
    sigemptyset(&watched);
    for (const int signal_number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
      struct sigaction action = {};
      ::sigaction(signal_number, nullptr, &action);
      if (signal_number == SIGHUP && action.sa_handler == SIG_IGN) continue;  // nohup's
      previous.emplace_back(signal_number, action);
      action = {};
      action.sa_handler = &note_signal;
      action.sa_flags = SA_RESTART;
      ::sigaction(signal_number, &action, nullptr);
      sigaddset(&watched, signal_number);
    }
    ::pthread_sigmask(SIG_BLOCK, &watched, nullptr);
  }
  ~Handlers() {
    for (const auto& [signal_number, action] : previous) ::sigaction(signal_number, &action, nullptr);
    signal_pipe = -1;
  }

  cxxrun::UniqueFd read_end, write_end;
  sigset_t watched;
  std::vector<std::pair<int, struct sigaction>> previous;
};

ShutdownWatcher::ShutdownWatcher(int control_fd)
    // A duplicate: beats are sent from another thread through the original.
    : control_(control_fd < 0 ? -1 : ::fcntl(control_fd, F_DUPFD_CLOEXEC, 0)), handlers_(new Handlers), quit_(::eventfd(0, EFD_CLOEXEC)) {
  if (!quit_) throw cxxrun::errno_error("cannot watch signals");
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
  ::pthread_sigmask(SIG_UNBLOCK, &handlers_->watched, nullptr);
  for (;;) {
    pollfd fds[] = {{quit_.get(), POLLIN, 0}, {handlers_->read_end.get(), POLLIN, 0}, {control_.fd(), POLLIN, 0}};
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
    unsigned char signal_number = 0;
    if (fds[1].revents && ::read(handlers_->read_end.get(), &signal_number, 1) == 1) on_signal(signal_number);
  }
}

}  // namespace vla
