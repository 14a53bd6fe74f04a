#include "launcher/output/output_sink.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "common/error.hpp"

namespace cxxrun {
namespace {

constexpr size_t kPendingLimit = 1 << 20;
constexpr int kStallMilliseconds = 1000;

// O_NONBLOCK belongs to the open file, which our parent shares; opening it again gives one of our own. That works for pipes
// and terminals. Regular files never block, and a second one would have a position of its own.
UniqueFd reopen_nonblocking(int fd, mode_t mode) {
  if (!S_ISFIFO(mode) && !S_ISCHR(mode)) return UniqueFd();
  return UniqueFd(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

}  // namespace

OutputSink::OutputSink(EventLoop& loop, int fd, std::function<void()> on_change)
    : loop_(loop), on_change_(std::move(on_change)), fd_(fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return;
  is_socket_ = S_ISSOCK(status.st_mode);
  own_ = reopen_nonblocking(fd, status.st_mode);
  if (own_) fd_ = own_.get();
}

OutputSink::~OutputSink() { watch(false); }

bool OutputSink::full() const { return pending_.size() - done_ > kPendingLimit; }

void OutputSink::write(std::string_view first, std::string_view second) {
  if (broken_) return;
  size_t taken = 0;
  if (empty()) {
    taken = write_some(first, second);
    if (taken == first.size() + second.size()) return;
  }
  pending_.erase(0, std::exchange(done_, 0));
  const size_t of_first = std::min(taken, first.size());
  pending_ += first.substr(of_first);
  pending_ += second.substr(taken - of_first);
  watch(true);
}

// How many bytes are dealt with: all of them, unless the target is full.
size_t OutputSink::write_some(std::string_view first, std::string_view second) {
  const size_t all = first.size() + second.size();
  for (size_t done = 0; done < all;) {
    const size_t of_first = std::min(done, first.size());
    const std::string_view a = first.substr(of_first), b = second.substr(done - of_first);
    iovec parts[] = {{const_cast<char*>(a.data()), a.size()}, {const_cast<char*>(b.data()), b.size()}};
    const msghdr message{.msg_name = nullptr,
                         .msg_namelen = 0,
                         .msg_iov = parts,
                         .msg_iovlen = 2,
                         .msg_control = nullptr,
                         .msg_controllen = 0,
                         .msg_flags = 0};
    const ssize_t size = is_socket_ ? ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) : ::writev(fd_, parts, 2);
    if (size > 0) {
      done += static_cast<size_t>(size);
    } else if (errno == EAGAIN) {
      return done;
    } else if (errno != EINTR) {
      broken_ = errno == EPIPE || errno == EIO || errno == ECONNRESET;
      if (!broken_ && !std::exchange(lost_some_, true)) error_ = errno;
      return all;
    }
  }
  return all;
}

void OutputSink::flush() {
  done_ += write_some(std::string_view(pending_).substr(done_), {});
  if (broken_ || empty()) {
    pending_.clear();
    done_ = 0;
    watch(false);
  }
}

void OutputSink::watch(bool wanted) {
  if (wanted == watched_) return;
  watched_ = wanted;
  if (!wanted) return loop_.forget(fd_);
  loop_.watch(fd_, EPOLLOUT, [this] {
    flush();
    on_change_();
  });
}

void OutputSink::wait_until_empty() {
  pollfd target{.fd = fd_, .events = POLLOUT, .revents = 0};
  while (!empty() && ::poll(&target, 1, kStallMilliseconds) == 1) flush();
}

}  // namespace cxxrun
