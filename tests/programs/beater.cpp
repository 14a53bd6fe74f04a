// beater STEPS: beats STEPS times on the control socket, prints "ready"; on SIGUSR1 local rank 1 exits with 5, the others wait
// for the launcher's message, print it and end with 0, whatever signals come.
#include <poll.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "common/control_channel.hpp"
#include "common/worker_env.hpp"

int main(int argc, char** argv) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  const cxxrun::WorkerEnv env = cxxrun::WorkerEnv::read();
  cxxrun::ControlChannel launcher(env.control_fd);
  for (int step = 1; argc > 1 && step <= std::atoi(argv[1]); ++step) launcher.beat(step);
  std::puts("ready");
  std::fflush(stdout);
  if (env.local_rank == 1) {
    int signo = 0;
    while (signo != SIGUSR1) ::sigwait(&set, &signo);
    return 5;
  }
  pollfd waiting{.fd = launcher.fd(), .events = POLLIN, .revents = 0};
  ::poll(&waiting, 1, 20'000);
  if (const auto message = launcher.poll())
    std::printf("rank %d heard %s %d\n", static_cast<int>(env.rank), message->verb.c_str(),
                static_cast<int>(message->value));
  return 0;
}
