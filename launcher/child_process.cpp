#include "launcher/child_process.hpp"

// Boost 1.81's Process v2 forgets to include these two when it uses std::filesystem.
#include <boost/optional.hpp>
#include <boost/type_traits/decay.hpp>

#define BOOST_PROCESS_USE_STD_FS 1
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <boost/asio/io_context.hpp>
#include <boost/process/v2/posix/default_launcher.hpp>
#include <boost/process/v2/process.hpp>

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>

#include "common/error.hpp"

namespace cxxrun {
namespace {

namespace process = boost::process::v2;

boost::system::error_code last_error() { return {errno, boost::system::system_category()}; }

// A placement that the kernel refuses is not worth a job: the rank runs anywhere then.
void place(const CpuPlacement& placement) {
  if (!placement.cpus.empty()) {
    const int highest = *std::max_element(placement.cpus.begin(), placement.cpus.end());
    cpu_set_t* set = CPU_ALLOC(highest + 1);
    const size_t size = CPU_ALLOC_SIZE(highest + 1);
    CPU_ZERO_S(size, set);
    for (const int cpu : placement.cpus) CPU_SET_S(cpu, size, set);
    ::sched_setaffinity(0, size, set);
    CPU_FREE(set);
  }
  if (!placement.memory_nodes.empty()) {
    unsigned long nodes[16] = {};  // 1024 nodes, the kernel's limit
    for (const int node : placement.memory_nodes) nodes[node / 64 % 16] |= 1UL << (node % 64);
    constexpr int kPreferredMany = 5;  // MPOL_PREFERRED_MANY: falls back to other nodes when these are full
    ::syscall(SYS_set_mempolicy, kPreferredMany, nodes, sizeof nodes * 8);
  }
}

// What happens in the child between fork and exec.
struct RankSetup {
  const SpawnSpec& spec;
  pid_t parent;

  template <class... Context>
  boost::system::error_code on_exec_setup(Context&&...) const {
    if (::setsid() < 0) return last_error();
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return last_error();
    if (::getppid() != parent) ::_exit(128 + SIGKILL);  // it died before we asked to be told
    place(spec.placement);
    if (spec.stdout_fd >= 0 && ::dup2(spec.stdout_fd, STDOUT_FILENO) < 0) return last_error();
    if (spec.stderr_fd >= 0 && ::dup2(spec.stderr_fd, STDERR_FILENO) < 0) return last_error();
    // Boost's own closing leaves the gaps between whitelisted descriptors open. Marking all of them closes them by the exec,
    // and keeps Boost's error pipe until then.
    if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
      for (int fd = 3, end = static_cast<int>(::sysconf(_SC_OPEN_MAX)); fd < end; ++fd) {
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
      }
    }
    if (spec.inherited_fd >= 0) ::fcntl(spec.inherited_fd, F_SETFD, 0);
    ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &spec.signal_mask, nullptr);
    return {};
  }

  // Boost ends a child that could not exec with ::exit, which would run the launcher's own exit handlers.
  template <class... Context>
  void on_exec_error(Context&&...) const {
    ::_exit(127);
  }
};

std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::map<std::string, std::string, std::less<>> merged;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != text.npos) merged.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const auto& [name, value] : changes) merged.insert_or_assign(name, value);
  std::vector<std::string> result;
  for (const auto& [name, value] : merged) result.push_back(name + "=" + value);
  return result;
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> result;
  for (const std::string& text : texts) result.push_back(text.c_str());
  result.push_back(nullptr);
  return result;
}

}  // namespace

ChildProcess ChildProcess::spawn(const SpawnSpec& spec) {
  static boost::asio::io_context context(1);
  const std::vector<std::string> environment = merged_environment(spec.environment);
  const std::vector<const char*> environment_pointers = pointers(environment);
  std::vector<const char*> argv = pointers(spec.argv);

  process::posix::default_launcher launcher;
  launcher.env = environment_pointers.data();
  if (spec.inherited_fd >= 0) launcher.fd_whitelist.push_back(spec.inherited_fd);
  boost::system::error_code error;
  auto child = launcher(context.get_executor(), error, process::filesystem::path(spec.path), argv.data(),
                        RankSetup{spec, ::getpid()});
  if (error) {
    if (launcher.pid > 0) ::waitpid(launcher.pid, nullptr, 0);
    throw Error("cannot start '{}': {}", spec.path, error.message());
  }
  // From here on the pid is ours: Boost's handle would reap by itself and knows nothing of sessions.
  child.detach();
  return ChildProcess(launcher.pid);
}

ChildProcess::~ChildProcess() {
  if (!running()) return;
  signal_group(SIGKILL);
  // Not waited for: in uninterruptible sleep it would hold us. Whoever outlives us reaps it.
  ::waitpid(pid_, nullptr, WNOHANG);
}

void ChildProcess::signal_group(int signo) const {
  // Safe from reused pids: ours is not reaped yet.
  if (running()) ::kill(-pid_, signo);
}

std::optional<ExitStatus> ChildProcess::reap() {
  int status = 0;
  if (!running() || ::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  return ExitStatus::from_wait(status);
}

}  // namespace cxxrun
