// Turns signals and the launcher's messages into requests that the training loop reads once a step, so that all ranks can
// agree on the step at which to stop. TERM, INT and HUP ask to save and stop, USR1 and USR2 to save and go on. A second
// TERM or INT, or the news that another rank failed, ends the process at once: waiting in a collective for a dead peer helps nobody.
// Construct before any other thread exists: threads started later have these signals blocked, so that none of their calls is
// interrupted. One that unblocks them nevertheless, as libraries' threads do, changes nothing. At most one at a time: it owns the
// process' handlers of these signals, and one thread.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "common/control_channel.hpp"
#include "common/unique_fd.hpp"

namespace vla {

class ShutdownWatcher {
 public:
  explicit ShutdownWatcher(int control_fd);  // -1 without a launcher
  ~ShutdownWatcher();

  int stop_signal() const { return stop_signal_; }  // 0 = none
  bool take_save_request() { return save_requested_.exchange(false); }

 private:
  void watch();
  void on_signal(int signal_number);

  std::atomic<int> stop_signal_ = 0;
  std::atomic<bool> save_requested_ = false;
  cxxrun::ControlChannel control_;
  struct Handlers;
  std::unique_ptr<Handlers> handlers_;
  cxxrun::UniqueFd quit_;
  std::thread thread_;
};

}  // namespace vla
