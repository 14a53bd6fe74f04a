// Blocks the signals that cxxrun acts on and delivers them through a descriptor, in the main loop instead of in handlers.
// A signal that is ignored when cxxrun starts (nohup, a background job of sh) stays ignored, here and in the ranks.
// Threads: block before any is started. The mask is the process's for good; children are given original_mask back.
#pragma once

#include <sys/signalfd.h>

#include <csignal>
#include <optional>
#include <set>

#include "common/unique_fd.hpp"

namespace cxxrun {

class SignalSource {
 public:
  // `stop_signals`: those that ask for the end of the job. All others that come are for the ranks.
  explicit SignalSource(std::set<int> stop_signals);

  // A signalfd belongs to the process that made it: to be called again after a fork.
  void reopen();

  int fd() const { return fd_.get(); }
  std::optional<int> next();  // does not block
  bool stops_job(int signo) const { return stop_signals_.contains(signo); }
  const sigset_t& original_mask() const { return original_mask_; }

 private:
  std::set<int> stop_signals_;
  sigset_t handled_;
  sigset_t original_mask_;
  UniqueFd fd_;
};

}  // namespace cxxrun
