// How a process ended, and what that means in words. Pure values.
#pragma once

#include <sys/wait.h>

#include <string>

namespace cxxrun {

struct ExitStatus {
  int code = 0;  // exit code, when signo is 0
  int signo = 0;  // the signal that killed it

  static ExitStatus from_wait(int status) {
    return WIFSIGNALED(status) ? ExitStatus{.signo = WTERMSIG(status)} : ExitStatus{.code = WEXITSTATUS(status)};
  }
  bool success() const { return code == 0 && signo == 0; }
  // As a shell says it: 128+n for death by signal n.
  int shell_code() const { return signo != 0 ? 128 + signo : code; }
  // As Python, and so torchrun, says it: -n for death by signal n.
  int python_code() const { return signo != 0 ? -signo : code; }
};

// "SIGTERM", "SIGRTMIN+3", "signal 99".
std::string signal_name(int signo);

// "exit code 3", "exit code 127 (a command … was not found)", "signal SIGKILL (killed from outside …)". Codes 3 to 5 mean
// something only when the program is vla_worker.
std::string describe(const ExitStatus& status, bool is_vla_worker = false);

}  // namespace cxxrun
