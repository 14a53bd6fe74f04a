// One rank's process: a session and process group of its own, so that the terminal signals only cxxrun. Owns the pid; a
// live ChildProcess destroyed kills its group. Dies with the thread that spawned it (PR_SET_PDEATHSIG): main
// thread only. Does not poll: the owner reaps when SIGCHLD tells it to. spawn() throws Error with the program and the reason.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/devices/cpu_placement.hpp"
#include "launcher/report/exit_status.hpp"

namespace cxxrun {

struct SpawnSpec {
  std::string path;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;  // added to, or replacing in, our own
  int stdout_fd = -1, stderr_fd = -1;  // become descriptors 1 and 2; -1 = inherited
  CpuPlacement placement = {};
  int inherited_fd = -1;  // the only descriptor above 2 that the child keeps
  sigset_t signal_mask{};
};

class ChildProcess {
 public:
  static ChildProcess spawn(const SpawnSpec& spec);

  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  bool running() const { return pid_ > 0; }
  void signal_group(int signo) const;
  // The status if it has ended; never blocks.
  std::optional<ExitStatus> reap();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;
};

}  // namespace cxxrun
