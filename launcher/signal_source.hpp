// Blocks the signals that cxxrun acts on and delivers them through a descriptor, in the main loop instead of in handlers.
// A signal that is ignored when cxxrun starts (nohup, a background job of sh) stays ignored, here and in the ranks.
// Threads: block before any is started. The mask is the process's for good; children are given original_mask back.
#pragma once

#include <sys/signalfd.h>

#include <csignal>
#include <optional>

#include "common/unique_fd.hpp"

namespace cxxrun {

// Asks for the end of the job: TERM, INT, QUIT, HUP.
bool stops_job(int signo);

class SignalSource {
 public:
  SignalSource();

  // A signalfd belongs to the process that made it: to be called again after a fork.
  void reopen();

  int fd() const { return fd_.get(); }
  std::optional<int> next();  // does not block
  const sigset_t& original_mask() const { return original_mask_; }

 private:
  sigset_t handled_;
  sigset_t original_mask_;
  UniqueFd fd_;
};

}  // namespace cxxrun
