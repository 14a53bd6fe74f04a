#include "launcher/output/console.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/worker_env.hpp"

namespace cxxrun {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kPause = 50ms;  // a writer on a terminal waits for somebody, or is slow
constexpr std::chrono::seconds kLongBar = 5s;  // elsewhere a line that redraws for longer is a progress bar
constexpr std::chrono::milliseconds kWordsWait = 200ms;
constexpr size_t kHeldLimit = 64 << 20;
constexpr size_t kBatch = 1 << 18;
constexpr size_t kCopyLimit = 4096;  // longer texts go to the sink from where they are

bool is_dumb() { return environment_variable("TERM") == "dumb"; }

// "\r\n" is the end of a line like any other.
bool goes_back(std::string_view text) {
  const size_t at = text.find('\r');
  return at != text.npos && text.substr(at) != "\r\n";
}

}  // namespace

Console::Console(EventLoop& loop, int fd, std::function<void()> on_change)
    : terminal_(::isatty(fd) == 1),
      colours_(terminal_ && !is_dumb() && environment_variable("NO_COLOR").value_or("").empty()),
      erases_(terminal_ && !is_dumb()),
      sink_(loop, fd, std::move(on_change)),
      held_timer_(loop, [this] { show_held(); }),
      words_timer_(loop, [this] { flush_words(); }) {}

void Console::set_manner(bool several, bool bare_bars) {
  several_ = several;
  bare_bars_ = bare_bars;
}

Console::Writer& Console::open(std::string prefix) { return writers_.emplace_back(std::move(prefix)); }

void Console::write(Writer& writer, std::string_view bytes) {
  if (!several_ && writer.prefix.empty()) {
    pass(writer, bytes);
  } else {
    const size_t complete = bytes.rfind('\n') + 1;  // 0 if there is none
    if (complete > 0) {
      take_line(&writer);
      emit(writer, std::exchange(writer.held, {}));
      emit(writer, bytes.substr(0, complete));
      writer.redraws = false;
      open_ = false;
      flush_words();
    }
    hold(writer, bytes.substr(complete));
  }
  settle();
}

// As if the rank had our own descriptor, except that our words wait for the end of its line.
void Console::pass(Writer& writer, std::string_view bytes) {
  if (const size_t newline = bytes.find('\n'); !words_.empty() && newline != bytes.npos) {
    put(bytes.substr(0, newline + 1));
    open_ = false;
    flush_words();
    bytes.remove_prefix(newline + 1);
  }
  if (bytes.empty()) return;
  put(bytes);
  open_ = bytes.back() != '\n';
  owner_ = &writer;
}

void Console::hold(Writer& writer, std::string_view bytes) {
  if (bytes.empty()) return;
  writer.held += bytes;
  writer.fresh = true;
  writer.redraws |= bytes.find('\r') != bytes.npos;
  const bool continues = open_ && owner_ == &writer;
  if (continues || !several_ || (terminal_ && writer.redraws) || writer.held.size() > kHeldLimit) {
    show(writer, writer.held.size());
  } else if (!held_timer_armed_ && (terminal_ || writer.redraws)) {
    held_timer_.arm(terminal_ ? kPause : std::chrono::milliseconds(kLongBar));
    held_timer_armed_ = true;
  }
}

void Console::show(Writer& writer, size_t size) {
  take_line(&writer);
  emit(writer, std::string_view(writer.held).substr(0, size));
  writer.held.erase(0, size);
  open_ = true;
  owner_ = &writer;
}

void Console::show_held() {
  held_timer_armed_ = false;
  for (Writer& writer : writers_) {
    if (writer.held.empty()) continue;
    if (terminal_ && std::exchange(writer.fresh, false)) {
      held_timer_.arm(kPause);
      held_timer_armed_ = true;
    } else if (const size_t size = terminal_ ? writer.held.size() : writer.held.rfind('\r') + 1; size > 0) {
      show(writer, size);
    }
  }
  settle();
}

void Console::close(Writer& writer) {
  if (!writer.held.empty()) show(writer, writer.held.size());
  if (owner_ == &writer) owner_ = nullptr;
  settle();
  writers_.remove_if([&](const Writer& one) { return &one == &writer; });
}

void Console::say(std::string_view words) {
  if (words.empty()) return;
  if (words_.empty()) words_timer_.arm(kWordsWait);
  words_ += words;
  if (!words.ends_with('\n')) words_ += '\n';
  settle();
}

void Console::flush_words() {
  if (words_.empty()) return;
  if (open_) end_line("\n");
  put(std::exchange(words_, {}));
  words_timer_.disarm();
  settle();
}

// After every change: our words if nobody is within a line, and all that was put together.
void Console::settle() {
  if (!words_.empty() && !(open_ && owner_)) return flush_words();
  if (!batch_.empty()) sink_.write(batch_);
  batch_.clear();
}

void Console::take_line(const Writer* writer) {
  if (open_ && owner_ != writer) end_line(erases_ && owner_ && owner_->redraws ? "\r\x1b[K" : "\n");
}

void Console::end_line(std::string_view how) {
  put(how);
  if (owner_) owner_->wants_prefix = true;
  if (owner_) owner_->within_line = false;
  open_ = false;
}

void Console::emit(Writer& writer, std::string_view text) {
  if (writer.prefix.empty()) return put(text);
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline == text.npos ? newline : newline + 1);
    if (terminal_) {
      emit_on_terminal(writer, line);
    } else {
      if (writer.wants_prefix) put(writer.prefix);
      put(line);
      writer.wants_prefix = newline != text.npos;
    }
    text.remove_prefix(line.size());
  }
}

// Whoever goes back to the start of a line overwrites its prefix, which therefore is written again; or not at all, while this
// is the only progress bar.
void Console::emit_on_terminal(Writer& writer, std::string_view line) {
  const bool ends = line.back() == '\n';
  if (bare_bars_ && (writer.redraws || goes_back(line)) && !others_redraw(writer)) {
    put(line);
    writer.wants_prefix = ends || line.back() == '\r';
  } else {
    while (!line.empty()) {
      const size_t back = line.find('\r');
      const std::string_view piece = line.substr(0, back == line.npos ? back : back + 1);
      const bool shows = piece != "\r" && !(piece == "\n" && writer.within_line);
      if (writer.wants_prefix && shows) put(writer.prefix);
      put(piece);
      writer.within_line = true;
      writer.wants_prefix = back != line.npos || (writer.wants_prefix && !shows);
      line.remove_prefix(piece.size());
    }
    writer.wants_prefix |= ends;
  }
  writer.within_line = !ends;
  if (ends) writer.redraws = false;
}

bool Console::others_redraw(const Writer& writer) const {
  return std::any_of(writers_.begin(), writers_.end(),
                     [&](const Writer& other) { return &other != &writer && other.redraws; });
}

void Console::put(std::string_view text) {
  if (text.size() >= kCopyLimit || batch_.size() + text.size() > kBatch) {
    sink_.write(batch_, text);
    batch_.clear();
  } else {
    batch_ += text;
  }
}

}  // namespace cxxrun
