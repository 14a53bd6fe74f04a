// Runs cxxrun (or any command) as a user would, in a process group of its own, with its output in files, and finds what it
// leaves behind: every descendant carries a marker variable in its environment. A live one destroyed is killed, marked
// processes included. Waiting has a hard limit, after which the test fails.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/temp_dir.hpp"

namespace cxxrun::testing {

inline constexpr std::chrono::seconds kPatience{30};

// True as soon as `condition` holds, false when it never does.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = kPatience);

// Programs of this build; of another folder when they travelled: CXXRUN_TEST_BIN_DIR.
std::string cxxrun_path();
std::string program_path(const std::string& name);
std::string device_option();  // "--device=cpu", or the one that CXXRUN_TEST_DEVICE names

class Launched {
 public:
  struct Options {
    std::vector<std::string> environment = {};  // "NAME=value"; "NAME" removes it
    std::string working_directory = "";
    std::vector<int> ignored_signals = {};
    std::vector<int> closed_fds = {};
    std::string stdin_text = "";
    int stderr_fd = -1;  // instead of the file
    std::chrono::seconds patience = kPatience;  // of wait()
  };

  explicit Launched(const std::vector<std::string>& command) : Launched(command, Options()) {}
  Launched(const std::vector<std::string>& command, const Options& options);
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;
  ~Launched();

  pid_t pid() const { return pid_; }
  void send(int signo) const { ::kill(pid_, signo); }
  int wait();  // as a shell would say it: 128+n for signals
  std::string out() const;
  std::string err() const;
  bool waits_for(const std::string& text) const;  // on stdout
  std::vector<pid_t> marked() const;  // live processes of this launch, cxxrun's included
  bool leaves_nothing() const;  // soon
  pid_t supervisor() const;  // the child of the process that we started

 private:
  TempDir folder_;
  std::string marker_;
  std::chrono::seconds patience_;
  pid_t pid_ = -1;
  int status_ = -1;
};

// {"cxxrun", "--no-python", "--nproc-per-node=N", "sh", "-c", script}
std::vector<std::string> shell_ranks(int ranks, const std::string& script,
                                     const std::vector<std::string>& options = {});

char process_state(pid_t pid);  // 'R', 'S', 'T', 'Z'…; 0 when there is none
pid_t parent_of(pid_t pid);
size_t count(const std::string& text, const std::string& part);

}  // namespace cxxrun::testing
