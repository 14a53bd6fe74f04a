#include "launcher/stderr_relay.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>

#include "common/error.hpp"

namespace cxxrun {
namespace {

constexpr size_t kPipeSize = 1 << 16;
constexpr size_t kTailBytes = 1 << 14;
constexpr size_t kPendingLimit = 1 << 20;
constexpr int kDrainMilliseconds = 1000;

// O_NONBLOCK belongs to the open file, which our parent shares; opening it again gives one of our own. That works for pipes
// and terminals. Regular files never block, and a second one would have a position of its own.
UniqueFd reopen_nonblocking(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode))) return UniqueFd();
  return UniqueFd(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

}  // namespace

StderrRelay::StderrRelay(EventLoop& loop, int target_fd)
    : loop_(loop), own_target_(reopen_nonblocking(target_fd)), target_(own_target_ ? own_target_.get() : target_fd) {}

StderrRelay::~StderrRelay() {
  for (auto& [rank, source] : sources_) close(source);
  if (waiting_) loop_.forget(target_);
}

UniqueFd StderrRelay::open(int rank) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw errno_error("cannot create a pipe for a rank's stderr");
  Source& source = sources_[rank];
  close(source);
  source = Source{.fd = UniqueFd(ends[0])};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  if (!paused_) watch(source);
  return UniqueFd(ends[1]);
}

void StderrRelay::watch(Source& source) {
  loop_.watch(source.fd.get(), EPOLLIN, [this, &source] { read_some(source); });
}

bool StderrRelay::read_some(Source& source) {
  char buffer[kPipeSize];
  const ssize_t size = ::read(source.fd.get(), buffer, sizeof buffer);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) {
    pending_ += source.held;
    source.held.clear();
    flush();
    close(source);
    return false;
  }
  const std::string_view bytes(buffer, static_cast<size_t>(size));
  source.tail += bytes;
  if (source.tail.size() > 2 * kTailBytes) source.tail.erase(0, source.tail.size() - kTailBytes);
  // A full pipe may have cut a line; its rest is there as soon as the writer runs again.
  const size_t newline = bytes.rfind('\n');
  const bool cut = bytes.size() == kPipeSize && newline != bytes.npos;
  const size_t complete = cut ? newline + 1 : bytes.size();
  pending_ += source.held;
  pending_ += bytes.substr(0, complete);
  source.held = bytes.substr(complete);
  flush();
  return true;
}

void StderrRelay::close(Source& source) {
  if (source.fd) loop_.forget(source.fd.get());
  source.fd.reset();
}

void StderrRelay::write(std::string_view text) {
  pending_ += text;
  flush();
}

void StderrRelay::flush() {
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t size = ::write(target_, pending_.data() + done, pending_.size() - done);
    if (size >= 0) {
      done += static_cast<size_t>(size);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      done = pending_.size();  // nobody reads any more
    }
  }
  pending_.erase(0, done);
  if (const bool wait = !pending_.empty(); wait != waiting_) {
    waiting_ = wait;
    if (wait) {
      loop_.watch(target_, EPOLLOUT, [this] { flush(); });
    } else {
      loop_.forget(target_);
    }
  }
  pause(pending_.size() > kPendingLimit);
}

void StderrRelay::pause(bool paused) {
  if (paused == paused_) return;
  paused_ = paused;
  for (auto& [rank, source] : sources_) {
    if (!source.fd) continue;
    if (paused) {
      loop_.forget(source.fd.get());
    } else {
      watch(source);
    }
  }
}

void StderrRelay::drain() {
  for (auto& [rank, source] : sources_) {
    // At most what fits into a pipe: a process that escaped and writes for ever must not hold us here.
    for (size_t i = 0; source.fd && i < 16 && read_some(source); ++i) {
    }
    pending_ += source.held;
    source.held.clear();
    close(source);
  }
  flush();
  pollfd target{.fd = target_, .events = POLLOUT, .revents = 0};
  while (!pending_.empty() && !stalled_) {
    stalled_ = ::poll(&target, 1, kDrainMilliseconds) != 1;
    flush();
  }
}

std::vector<std::string> StderrRelay::last_lines(int rank, size_t count) const {
  std::vector<std::string> lines;
  const auto source = sources_.find(rank);
  if (source == sources_.end()) return lines;
  std::string_view rest = source->second.tail;
  while (!rest.empty() && lines.size() < count) {
    const size_t newline = rest.rfind('\n');
    std::string_view line = newline == rest.npos ? rest : rest.substr(newline + 1);
    rest = newline == rest.npos ? std::string_view() : rest.substr(0, newline);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (const size_t redraw = line.rfind('\r'); redraw != line.npos) line.remove_prefix(redraw + 1);
    if (!line.empty()) lines.emplace_back(line);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace cxxrun
