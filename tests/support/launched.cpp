#include "tests/support/launched.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "common/error.hpp"

namespace cxxrun::testing {
namespace {

namespace fs = std::filesystem;

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string stat_fields(pid_t pid) {  // from the state on
  const std::string text = slurp(fmt::format("/proc/{}/stat", pid));
  const size_t close = text.rfind(')');
  return close == text.npos ? "" : text.substr(close + 2);
}

}  // namespace

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::string cxxrun_path() { return program_path("cxxrun"); }

std::string program_path(const std::string& name) {
  const char* elsewhere = std::getenv("CXXRUN_TEST_BIN_DIR");
  return fmt::format("{}/{}", elsewhere ? elsewhere : TEST_BIN_DIR, name);
}

std::string device_option() {
  const char* device = std::getenv("CXXRUN_TEST_DEVICE");
  return fmt::format("--device={}", device ? device : "cpu");
}

Launched::Launched(const std::vector<std::string>& command, const Options& options) : patience_(options.patience) {
  static std::atomic<int> counter = 0;
  marker_ = fmt::format("CXXRUN_TEST_MARKER={}-{}", ::getpid(), counter++);
  const std::string out = (folder_.path() / "out").string(), err = (folder_.path() / "err").string(),
                    in = (folder_.path() / "in").string();
  std::ofstream(in) << options.stdin_text;
  pid_ = ::fork();
  if (pid_ != 0) return;

  ::setpgid(0, 0);
  for (const std::string& entry : options.environment) {
    const size_t equals = entry.find('=');
    if (equals == entry.npos) {
      ::unsetenv(entry.c_str());
    } else {
      ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
    }
  }
  ::setenv("CXXRUN_TEST_MARKER", marker_.c_str() + marker_.find('=') + 1, 1);
  for (const int signo : options.ignored_signals) ::signal(signo, SIG_IGN);
  ::dup2(::open(in.c_str(), O_RDONLY), 0);
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 1);
  ::dup2(options.stderr_fd >= 0 ? options.stderr_fd : ::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
  for (int fd = 3; fd < 64; ++fd) ::close(fd);
  for (const int fd : options.closed_fds) ::close(fd);
  if (!options.working_directory.empty() && ::chdir(options.working_directory.c_str()) != 0) ::_exit(99);
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(98);
}

Launched::~Launched() {
  if (status_ < 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const pid_t pid : marked()) ::kill(pid, SIGKILL);
}

int Launched::wait() {
  if (status_ >= 0) return status_;
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, patience_)) {
    ADD_FAILURE() << "still running; stdout: " << out() << " stderr: " << err();
    return -1;
  }
  status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return status_;
}

std::string Launched::out() const { return slurp(folder_.path() / "out"); }
std::string Launched::err() const { return slurp(folder_.path() / "err"); }

bool Launched::waits_for(const std::string& text) const {
  return eventually([&] { return out().find(text) != std::string::npos; });
}

std::vector<pid_t> Launched::marked() const {
  std::vector<pid_t> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = static_cast<pid_t>(std::strtol(entry.path().filename().c_str(), nullptr, 10));
    if (pid > 0 && slurp(entry.path() / "environ").find(marker_ + '\0') != std::string::npos) pids.push_back(pid);
  }
  return pids;
}

bool Launched::leaves_nothing() const {
  if (eventually([&] { return marked().empty(); }, std::chrono::seconds(10))) return true;
  for (const pid_t pid : marked())
    ADD_FAILURE() << "left behind: " << pid << " " << slurp(fmt::format("/proc/{}/cmdline", pid)) << " "
                  << stat_fields(pid);
  return false;
}

pid_t Launched::supervisor() const {
  pid_t found = 0;
  const bool exists = eventually([&] {
    for (const pid_t pid : marked()) {
      if (parent_of(pid) == pid_) found = pid;
    }
    return found != 0;
  });
  EXPECT_TRUE(exists) << "no supervisor";
  return found;
}

std::vector<std::string> shell_ranks(int ranks, const std::string& script, const std::vector<std::string>& options) {
  std::vector<std::string> command = {cxxrun_path(), "--no-python", fmt::format("--nproc-per-node={}", ranks)};
  command.insert(command.end(), options.begin(), options.end());
  // cxxrun replaces "$$" and "$local_rank" in arguments, so the script travels with its dollars doubled.
  std::string escaped;
  for (const char c : script) escaped += c == '$' ? std::string("$$") : std::string(1, c);
  command.insert(command.end(), {"sh", "-c", escaped});
  return command;
}

char process_state(pid_t pid) {
  const std::string fields = stat_fields(pid);
  return fields.empty() ? 0 : fields[0];
}

pid_t parent_of(pid_t pid) {
  const std::string fields = stat_fields(pid);
  return fields.size() < 3 ? 0 : static_cast<pid_t>(std::strtol(fields.c_str() + 2, nullptr, 10));
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace cxxrun::testing
