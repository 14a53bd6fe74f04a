// Where the streams of ranks come together: our stdout, our stderr, or both if they are the same file. Bytes stay as they are.
// One rank alone passes at once. Of several, lines stay whole and carry their prefix once; on a terminal the start of a line
// (a progress bar, a prompt) is shown when its writer pauses, elsewhere only bars that last. Only where somebody else must
// write after a line that was left open is a newline added (on a terminal, an open progress bar is cleared instead: its
// writer draws it again). Our own words have a line of their own. Main thread only, driven by the event loop.
#pragma once

#include <list>
#include <string>
#include <string_view>

#include "launcher/event_loop.hpp"
#include "launcher/output/output_sink.hpp"

namespace cxxrun {

class Console {
 public:
  // One stream of one rank.
  class Writer {
    friend class Console;
    std::string prefix;  // of each line; "" = none
    std::string held = {};  // the start of a line that has not been shown
    bool fresh = false;  // held has grown since the last look at it
    bool redraws = false;  // the open line goes back to its start
    bool wants_prefix = true;  // before the next byte
    bool within_line = false;

   public:
    explicit Writer(std::string line_prefix) : prefix(std::move(line_prefix)) {}
  };

  // `on_change`: the sink is full or broken, or no longer so, outside of a call of ours.
  Console(EventLoop& loop, int fd, std::function<void()> on_change);

  // For the writers that come next: whether they are of several ranks, and whether the progress bar of one alone has no prefix.
  void set_manner(bool several, bool bare_bars);
  Writer& open(std::string prefix);
  void write(Writer& writer, std::string_view bytes);
  void close(Writer& writer);  // its stream has ended; requires that it is open
  void say(std::string_view words);
  void flush_words();  // even into the middle of a line

  bool is_terminal() const { return terminal_; }
  bool has_colours() const { return colours_; }
  OutputSink& sink() { return sink_; }

 private:
  void pass(Writer& writer, std::string_view bytes);
  void hold(Writer& writer, std::string_view bytes);
  void show(Writer& writer, size_t size);  // the start of what it holds
  void show_held();
  void emit(Writer& writer, std::string_view text);
  void emit_on_terminal(Writer& writer, std::string_view line);
  void take_line(const Writer* writer);
  void end_line(std::string_view how);
  void settle();
  void put(std::string_view text);
  bool others_redraw(const Writer& writer) const;

  bool terminal_, colours_, erases_;
  OutputSink sink_;
  bool several_ = false, bare_bars_ = false;
  std::list<Writer> writers_;
  bool open_ = false;  // the last line on the console has no end yet
  Writer* owner_ = nullptr;  // who may continue it
  std::string words_;  // our own, waiting for the end of that line
  std::string batch_;  // of this call, not yet given to the sink
  Timer held_timer_, words_timer_;
  bool held_timer_armed_ = false;
};

}  // namespace cxxrun
