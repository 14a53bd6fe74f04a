#include "worker/loggers/line_child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "common/error.hpp"
#include "common/scope_exit.hpp"

namespace vla {
namespace {

constexpr size_t kMaxLineBytes = 64 << 10;

pid_t spawn(const std::vector<std::string>& command, int socket) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  const cxxrun::ScopeExit destroy([&] {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  });
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::posix_spawn_file_actions_adddup2(&files, socket, fd);
  // Other libraries' sockets, held open by a child, would keep peers from seeing that we are gone.
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  if (error) throw cxxrun::errno_error("cannot start " + command.at(0), error);
  return pid;
}

}  // namespace

LineChild::LineChild(const std::vector<std::string>& command) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw cxxrun::errno_error("cannot create a socket");
  socket_.reset(ends[0]);
  const cxxrun::UniqueFd theirs(ends[1]);
  pid_ = spawn(command, theirs.get());
}

LineChild::~LineChild() {
  if (!is_running()) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void LineChild::send(std::string line) {
  queue_.push_back(std::move(line) + "\n");
  queued_bytes_ += queue_.back().size();
  // A line of which a part is sent must be sent to its end.
  const size_t first = sent_of_first_ ? 1 : 0;
  while (queued_bytes_ > kMaxQueuedBytes && queue_.size() > first) {
    queued_bytes_ -= queue_[first].size();
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(first));
    ++dropped_;
  }
}

std::vector<std::string> LineChild::exchange() {
  std::vector<std::string> lines;
  write_queue();
  read_lines(lines);
  return lines;
}

bool LineChild::finish(std::chrono::milliseconds limit, std::vector<std::string>& output) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  bool told_end = false;
  while (is_running() && Clock::now() < deadline) {
    write_queue();
    if (queue_.empty() && !told_end) told_end = ::shutdown(socket_.get(), SHUT_WR) == 0;
    // Its exit wakes nobody when a process of its own keeps the socket: looked for every now and then.
    pollfd waiting{.fd = socket_.get(), .events = static_cast<short>(queue_.empty() ? POLLIN : POLLIN | POLLOUT), .revents = 0};
    ::poll(&waiting, 1, 20);
    if (waiting.revents & POLLHUP) ::poll(nullptr, 0, 5);
    read_lines(output);
  }
  read_lines(output);
  const bool ended = !is_running();
  if (!ended) {
    ::kill(-pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    status_ = status;
  }
  return ended;
}

bool LineChild::is_running() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return !status_;
}

std::string LineChild::exit_text() const {
  if (!status_) return "";
  return WIFSIGNALED(*status_) ? fmt::format("signal {}", WTERMSIG(*status_)) : fmt::format("exit code {}", WEXITSTATUS(*status_));
}

void LineChild::write_queue() {
  while (!queue_.empty()) {
    const std::string& line = queue_.front();
    const ssize_t sent = ::send(socket_.get(), line.data() + sent_of_first_, line.size() - sent_of_first_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return;  // full; or the child is gone, which is_running() tells
    sent_of_first_ += static_cast<size_t>(sent);
    if (sent_of_first_ < line.size()) return;
    queued_bytes_ -= line.size();
    sent_of_first_ = 0;
    queue_.pop_front();
  }
}

void LineChild::read_lines(std::vector<std::string>& lines) {
  char buffer[16 << 10];
  for (int reads = 0; reads < 16; ++reads) {  // a child that writes without end does not keep us
    const ssize_t received = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (received == 0 && !unfinished_.empty()) lines.push_back(std::exchange(unfinished_, ""));
    if (received <= 0) return;
    for (const char c : std::string_view(buffer, static_cast<size_t>(received))) {
      if (c == '\r') {
        unfinished_.clear();  // drawn again
      } else if (c != '\n' && unfinished_.size() < kMaxLineBytes) {
        unfinished_ += c;
      } else if (!unfinished_.empty()) {
        lines.push_back(std::move(unfinished_));
        unfinished_.clear();
      }
    }
  }
}

}  // namespace vla
