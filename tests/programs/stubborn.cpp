// stubborn [CODE]: everything that makes a process hard to get rid of. Ignores TERM, INT and HUP; leaves a grandchild whose
// parent is dead and a daemon in a session of its own, both just as deaf and holding all descriptors; prints "ready". With
// CODE it then exits with it, else it stays for ever.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

[[noreturn]] void stay() {
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  for (const int signo : {SIGTERM, SIGINT, SIGHUP}) ::signal(signo, SIG_IGN);
  int ready[2];
  if (::pipe(ready) != 0) return 99;
  for (const bool daemon : {false, true}) {
    if (::fork() == 0) {
      if (daemon) ::setsid();
      if (::fork() == 0) {
        if (::write(ready[1], "x", 1) != 1) return 99;
        stay();
      }
      ::_exit(0);
    }
  }
  char both[2];
  for (size_t seen = 0; seen < 2;) {
    const ssize_t size = ::read(ready[0], both, sizeof both - seen);
    if (size > 0) seen += static_cast<size_t>(size);
  }
  std::puts("ready");
  std::fflush(stdout);
  if (argc > 1) ::_exit(std::atoi(argv[1]));
  stay();
}
