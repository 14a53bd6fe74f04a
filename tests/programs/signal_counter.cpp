// signal_counter SECONDS: prints "ready", counts TERM, INT, HUP, USR1 and USR2; the first TERM, INT or HUP starts a
// "save" of SECONDS ("saving"), after which it prints the counts and ends with 0.
#include <cstdio>
#include <cstdlib>

#include <csignal>
#include <ctime>
#include <initializer_list>
#include <map>

int main(int argc, char** argv) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) ::sigaddset(&set, signo);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  std::puts("ready");
  std::fflush(stdout);

  std::map<int, int> counts;
  timespec end{};
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0;
  for (bool saving = false;;) {
    timespec left{.tv_sec = 3600, .tv_nsec = 0};
    if (saving) {
      timespec now{};
      ::clock_gettime(CLOCK_MONOTONIC, &now);
      const double rest =
          static_cast<double>(end.tv_sec - now.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - now.tv_nsec);
      if (rest <= 0) break;
      left = {.tv_sec = static_cast<time_t>(rest),
              .tv_nsec = static_cast<long>((rest - static_cast<double>(static_cast<time_t>(rest))) * 1e9)};
    }
    const int signo = ::sigtimedwait(&set, nullptr, &left);
    if (signo < 0) continue;
    ++counts[signo];
    if (signo == SIGUSR1 || signo == SIGUSR2) {
      std::printf("usr %d\n", counts[SIGUSR1] + counts[SIGUSR2]);
      std::fflush(stdout);
    } else if (!saving) {
      saving = true;
      std::puts("saving");
      std::fflush(stdout);
      ::clock_gettime(CLOCK_MONOTONIC, &end);
      end.tv_sec += static_cast<time_t>(seconds);
      end.tv_nsec += static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9);
    }
  }
  std::printf("TERM=%d INT=%d HUP=%d USR1=%d USR2=%d\n", counts[SIGTERM], counts[SIGINT], counts[SIGHUP],
              counts[SIGUSR1], counts[SIGUSR2]);
  return 0;
}
