// Takes the ranks' stdout and stderr to where their plans say: our own stdout and stderr, files, both, or nowhere. Owns the
// read ends (pipes; terminals where ours is one), the files and what is kept of stderr for the report. Never waits for a
// reader: then output waits in bounded memory, and so do the ranks that write. Where nobody reads our stdout any more, ranks
// that write only there are told by SIGPIPE, as without us. Main thread only; driven by the event loop.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/output_options.hpp"
#include "launcher/output/console.hpp"
#include "launcher/output/line_filter.hpp"
#include "launcher/output/line_tail.hpp"
#include "launcher/rank_plan.hpp"

namespace cxxrun {

// The rank's own ends, to be closed here once it has them.
struct RankStreams {
  UniqueFd out, err;
};

class OutputRouter {
 public:
  OutputRouter(EventLoop& loop, const OutputOptions& options, std::string role, int stdout_fd = STDOUT_FILENO,
               int stderr_fd = STDERR_FILENO);
  ~OutputRouter();

  // Passes on what is left of the attempt before, and forgets it. The filtered logs are beside the ranks' folders.
  void start_attempt(const std::vector<RankPlan>& plans);
  RankStreams open(const RankPlan& plan);
  // cxxrun's own words, on stderr, never within a rank's line.
  void write(std::string_view text);
  void resize();  // our terminal has
  // Takes all that the ranks have written and closes their streams: whoever still has the other end is not waited for.
  void drain();
  bool has_backlog() const;  // somebody has not read everything yet
  void wait_for_readers();  // for as long as they go on reading

  // Of its stderr. Without blank lines; of a progress bar, its last state.
  std::vector<std::string> last_lines(int local_rank, size_t count) const;

 private:
  struct Source {
    UniqueFd fd = {};
    bool watched = false;
    bool is_pty = false;
    Console* console = nullptr;
    Console::Writer* writer = nullptr;
    std::optional<LogFile> file = {};
    std::optional<LineFilter> filter = {};
    LineTail tail = {};
    bool keeps_tail = false;
    std::string written_by_rank = {};  // path of the file that the rank writes by itself
  };

  UniqueFd open_stream(const RankPlan& plan, int fd);
  UniqueFd connect(Source& source);
  std::string prefix_of(const RankPlan& plan, const StreamPlan& stream) const;
  size_t read_some(Source& source);  // 0: nothing there now
  void close(Source& source);
  void watch(Source& source, bool wanted);
  void react(Console& console);  // to its sink

  EventLoop& loop_;
  const OutputOptions& options_;
  std::string role_;
  std::unique_ptr<Console> own_out_, own_err_;  // no own_err_ where both are the same file
  Console *out_, *err_;
  bool several_ranks_ = false;
  std::optional<LogFile> filtered_out_, filtered_err_;
  std::map<std::pair<int, int>, Source> sources_;  // by local rank and descriptor
  std::unique_ptr<char[]> buffer_;
};

}  // namespace cxxrun
