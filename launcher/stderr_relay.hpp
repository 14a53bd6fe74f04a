// Passes the ranks' stderr on to our own, bytes unchanged and at once, and keeps each rank's last lines for the failure
// report. Owns the read ends of the pipes. Never blocks on a reader that does not read: then output waits, in bounded memory,
// and so do the ranks that write. Main thread only; driven by the event loop. Losing our own stderr loses output, no more.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.hpp"
#include "launcher/event_loop.hpp"

namespace cxxrun {

class StderrRelay {
 public:
  StderrRelay(EventLoop& loop, int target_fd);
  ~StderrRelay();

  // Forgets what earlier attempts wrote. Returns the write end for the child.
  UniqueFd open(int rank);
  // cxxrun's own words, in order with the ranks'.
  void write(std::string_view text);
  // Everything that the pipes hold now, then closes them: whoever still has a write end is not waited for.
  void drain();

  // The last lines, without blank ones; of a progress bar, its last state.
  std::vector<std::string> last_lines(int rank, size_t count) const;

 private:
  struct Source {
    UniqueFd fd;
    std::string held = {};  // the start of a line whose rest is still in the pipe
    std::string tail = {};
  };

  bool read_some(Source& source);  // false: nothing there now
  void close(Source& source);
  void watch(Source& source);
  void flush();
  void pause(bool paused);

  EventLoop& loop_;
  UniqueFd own_target_;
  int target_;
  bool waiting_ = false;  // for the target to take more
  bool paused_ = false;
  bool stalled_ = false;  // whoever reads our stderr has been waited for long enough
  std::string pending_;
  std::map<int, Source> sources_;
};

}  // namespace cxxrun
