// Turns signals and the launcher's messages into requests that the training loop reads once a step, so that all ranks can
// agree on the step at which to stop. TERM, INT and HUP ask to save and stop, USR1 and USR2 to save and go on. A second
// TERM or INT, or the news that another rank failed, ends the process at once: waiting in a collective for a dead peer helps nobody.
// Construct before any other thread exists (signals are blocked in threads started later). Owns one thread.
#pragma once

#include <atomic>
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
  cxxrun::UniqueFd signals_;
  cxxrun::UniqueFd quit_;
  std::thread thread_;
};

}  // namespace vla
