// Where the time of a training step goes. On a GPU the marks are events on the training stream, so that a phase is the time the
// device spent in it; they are read when a window of steps closes. On the CPU the marks are times of the clock. Marks taken while the
// stream is captured become part of the graph: each run of it takes them anew, so the split of graphs is that of the window's last
// step. Used by the training thread, and by the autograd thread that marks kBackwardDone while the training thread waits in backward().
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include <c10/core/Stream.h>

namespace vla {

// In the order in which a step reaches them.
enum class StepMark : uint8_t { kStart, kDataReady, kForwardDone, kBackwardDone, kReduced, kUpdated };

// Seconds of a step, by phase. With several micro-batches, all before the last one's backward counts as forward. all_reduce: what of
// the gradients' reduction was not hidden behind backward.
struct StepSeconds {
  double data = 0, forward = 0, backward = 0, all_reduce = 0, optimizer = 0;
};

class StepTimer {
 public:
  // Marks are taken on the stream of `device` that is current now.
  explicit StepTimer(at::Device device);
  ~StepTimer();

  // kStart begins a step; a mark that a step does not reach counts as the next one.
  void mark(StepMark mark);
  // Means per step since the last take(), which forgets them. Waits for the device.
  StepSeconds take();

 private:
  static constexpr size_t kMarks = 6;
  class Mark;
  using Step = std::array<Mark, kMarks>;

  c10::Stream stream_;
  std::vector<std::unique_ptr<Step>> steps_;  // kept for reuse: making events is not free
  size_t used_ = 0;
  std::unique_ptr<Step> captured_;  // marks inside graphs
};

}  // namespace vla
