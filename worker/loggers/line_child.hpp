// A child process that is told lines on its stdin and tells lines on its stdout and stderr, without ever making us wait: what it
// does not read is queued up to a limit, then the oldest lines are dropped. It is in a process group of its own, which is killed
// when this is destroyed. Not thread-safe, starts no thread. Only starting it can throw Error.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/unique_fd.hpp"

namespace vla {

class LineChild {
 public:
  static constexpr size_t kMaxQueuedBytes = 4 << 20;

  // The program is looked for in PATH.
  explicit LineChild(const std::vector<std::string>& command);
  LineChild(const LineChild&) = delete;
  LineChild& operator=(const LineChild&) = delete;
  ~LineChild();

  void send(std::string line);  // without its end
  // Writes and reads what can be at once. The lines the child has written since.
  std::vector<std::string> exchange();
  // No more lines are sent: its stdin ends behind those queued. Waits for its exit; false = it was killed instead.
  bool finish(std::chrono::milliseconds limit, std::vector<std::string>& output);

  bool is_running();
  std::string exit_text() const;  // "exit code 1", "signal 9"; "" while it runs
  int64_t dropped_lines() const { return dropped_; }

 private:
  void write_queue();
  void read_lines(std::vector<std::string>& lines);

  pid_t pid_ = -1;
  cxxrun::UniqueFd socket_;
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  size_t sent_of_first_ = 0;
  int64_t dropped_ = 0;
  std::string unfinished_;  // the start of a line of the child's
  std::optional<int> status_;  // of waitpid
};

}  // namespace vla
