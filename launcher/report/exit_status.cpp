#include "launcher/report/exit_status.hpp"

#include <csignal>
#include <cstring>

#include <fmt/format.h>

namespace cxxrun {
namespace {

struct Meaning {
  int value;
  const char* text;
};

constexpr Meaning kWorkerCodes[] = {{1, "training error"},
                                    {2, "wrong options or configuration"},
                                    {3, "out of memory"},
                                    {4, "rendezvous or port"},
                                    {5, "data"}};

constexpr Meaning kCodes[] = {
    {2, "usually wrong options, or a script that does not exist"},
    {126, "the command was found but cannot be executed"},
    {127, "a command or a shared library was not found"},
    {129, "hung up: 128 + SIGHUP"},
    {130, "interrupted: 128 + SIGINT"},
    {134, "aborted: 128 + SIGABRT"},
    {135, "bus error: 128 + SIGBUS"},
    {136, "arithmetic error: 128 + SIGFPE"},
    {137, "killed: 128 + SIGKILL"},
    {139, "segmentation fault: 128 + SIGSEGV"},
    {143, "terminated: 128 + SIGTERM"},
};

constexpr Meaning kSignals[] = {
    {SIGABRT, "aborted: a failed assertion, an uncaught C++ exception or a NCCL watchdog"},
    {SIGBUS, "bus error: often a full /dev/shm or a truncated mapped file"},
    {SIGFPE, "arithmetic error"},
    {SIGILL, "illegal instruction: built for another CPU?"},
    {SIGKILL, "killed from outside: by a user, a job scheduler or the kernel"},
    {SIGPIPE, "wrote to a closed pipe"},
    {SIGSEGV, "segmentation fault"},
    {SIGTERM, "terminated from outside"},
    {SIGXCPU, "CPU time limit"},
};

template <size_t N>
std::string with_meaning(std::string text, const Meaning (&table)[N], int value) {
  for (const Meaning& row : table) {
    if (row.value == value) return fmt::format("{} ({})", text, row.text);
  }
  return text;
}

}  // namespace

std::string signal_name(int signo) {
  if (const char* name = ::sigabbrev_np(signo)) return fmt::format("SIG{}", name);
  if (signo >= SIGRTMIN && signo <= SIGRTMAX) return fmt::format("SIGRTMIN+{}", signo - SIGRTMIN);
  return fmt::format("signal {}", signo);
}

std::string describe(const ExitStatus& status, bool is_vla_worker) {
  if (status.signo != 0) return with_meaning("signal " + signal_name(status.signo), kSignals, status.signo);
  const std::string code = fmt::format("exit code {}", status.code);
  return is_vla_worker && status.code <= 5 ? with_meaning(code, kWorkerCodes, status.code)
                                           : with_meaning(code, kCodes, status.code);
}

}  // namespace cxxrun
