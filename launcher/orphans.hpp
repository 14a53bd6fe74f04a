// Our children that nobody spawned on purpose: as their subreaper we adopt what ranks leave behind when they die. They are
// killed by adoption alone, generation after generation until none is left; never by walking a tree from our own pid.
// Children that existed before (a shell that execs into cxxrun may have some) are not ours to kill. Needs a /proc of our own
// pid namespace to find them; without one it kills nothing. Main thread only.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>

namespace cxxrun {

// 'R', 'S', 'D', 'T', …, as ps says it; '?' if there is no such process.
char process_state(pid_t pid);

class Orphans {
 public:
  // Becomes a subreaper and remembers the children that exist already.
  Orphans();

  // A child that has ended, spawned or adopted, not reaped yet: whoever knows its pid does that. Never blocks.
  std::optional<pid_t> next_ended();
  void reap(pid_t pid);

  bool any_child_left() const;
  void signal_all(int signo) const;
  // "1234 python3 (state D), 1240 sh (state S)", for telling what could not be killed.
  std::string describe() const;

 private:
  std::set<pid_t> children() const;

  std::set<pid_t> earlier_;
};

}  // namespace cxxrun
