#include "launcher/orphans.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/error.hpp"

namespace cxxrun {
namespace {

namespace fs = std::filesystem;

struct ProcessStat {
  std::string name;
  char state = '?';
  pid_t parent = 0;
};

ProcessStat read_stat(pid_t pid) {
  ProcessStat stat;
  std::string line;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), line);
  const size_t open = line.find('('), close = line.rfind(')');  // a name may contain both
  if (open == line.npos || close == line.npos || close + 4 >= line.size()) return stat;
  stat.name = line.substr(open + 1, close - open - 1);
  stat.state = line[close + 2];
  stat.parent = static_cast<pid_t>(std::strtol(line.c_str() + close + 4, nullptr, 10));
  return stat;
}

// A /proc of another pid namespace would name strangers.
bool proc_is_ours() {
  std::error_code error;
  return fs::read_symlink("/proc/self", error) == std::to_string(::getpid());
}

}  // namespace

char process_state(pid_t pid) { return read_stat(pid).state; }

Orphans::Orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw errno_error("cannot become a subreaper");
  earlier_ = children();
}

std::optional<pid_t> Orphans::next_ended() {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return std::nullopt;
  return info.si_pid;
}

void Orphans::reap(pid_t pid) {
  ::waitpid(pid, nullptr, WNOHANG);
  earlier_.erase(pid);  // the number may come back for a process that is ours
}

bool Orphans::any_child_left() const {
  if (!earlier_.empty()) return !children().empty();
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

void Orphans::signal_all(int signo) const {
  for (const pid_t pid : children()) ::kill(pid, signo);
}

std::string Orphans::describe() const {
  std::vector<std::string> texts;
  for (const pid_t pid : children()) {
    const ProcessStat stat = read_stat(pid);
    texts.push_back(fmt::format("{} {} (state {})", pid, stat.name, stat.state));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::set<pid_t> Orphans::children() const {
  std::set<pid_t> pids;
  if (!proc_is_ours()) return pids;
  const pid_t self = ::getpid();
  std::ifstream list(fmt::format("/proc/self/task/{}/children", self));
  if (list) {
    for (pid_t pid = 0; list >> pid;) pids.insert(pid);
  } else {  // kernels without CONFIG_PROC_CHILDREN
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const pid_t pid = static_cast<pid_t>(std::strtol(entry.path().filename().c_str(), nullptr, 10));
      if (pid > 0 && read_stat(pid).parent == self) pids.insert(pid);
    }
  }
  for (const pid_t pid : earlier_) pids.erase(pid);
  return pids;
}

}  // namespace cxxrun
