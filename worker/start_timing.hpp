// Where the time from the start of the process to the end of its first training step goes. The start is the kernel's, so that loading
// the program and its libraries counts. One per process, marked by the main thread; no Torch. Never throws: where /proc does not tell,
// time counts from the first mark.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace vla {

class StartTiming {
 public:
  using Clock = std::chrono::steady_clock;
  struct Phase {
    std::string name;
    double seconds = 0;
  };

  explicit StartTiming(Clock::time_point process_start) : last_(process_start) {}

  // What was done since the last mark is called `name`; a name that comes again adds up. Nothing after close().
  void mark(const std::string& name) { mark(name, Clock::now()); }
  void mark(const std::string& name, Clock::time_point now);
  void close() { is_open_ = false; }
  bool is_open() const { return is_open_; }

  const std::vector<Phase>& phases() const { return phases_; }
  double total() const;  // seconds

 private:
  Clock::time_point last_;
  bool is_open_ = true;
  std::vector<Phase> phases_;
};

// Of this process.
StartTiming& start_timing();

// A table of the phases, for the log.
std::vector<std::string> timing_lines(const StartTiming& timing);

}  // namespace vla
