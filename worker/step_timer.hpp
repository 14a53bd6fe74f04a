// Where the time of a training step goes. On a GPU the marks are events on the training stream, so that a phase is the time the
// device spent in it; they are read when a window of steps closes. On the CPU the marks are times of the clock. Used by the training
// thread, and by the autograd thread that marks kBackwardDone while the training thread waits in backward().
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include <c10/core/Event.h>

namespace vla {

// In the order in which a step reaches them.
enum class StepMark : uint8_t { kStart, kDataReady, kBackwardDone, kReduced, kUpdated };

// Seconds of a step, by phase. all_reduce: what of the gradients' reduction was not hidden behind backward.
struct StepSeconds {
  double data = 0, forward_backward = 0, all_reduce = 0, optimizer = 0;
};

class StepTimer {
 public:
  // Marks are taken on the stream of `device` that is current now.
  explicit StepTimer(at::Device device);

  // kStart begins a step; a mark that a step does not reach counts as the next one.
  void mark(StepMark mark);
  // Means per step since the last take(), which forgets them. Waits for the device.
  StepSeconds take();

 private:
  static constexpr size_t kMarks = 5;
  struct Mark {
    std::optional<c10::Event> event;
    std::chrono::steady_clock::time_point time;
    bool is_set = false;
  };
  using Step = std::array<Mark, kMarks>;

  static double seconds_between(const Mark& begin, const Mark& end);

  c10::Stream stream_;
  std::vector<Step> steps_;  // kept for reuse: making events is not free
  size_t used_ = 0;
};

}  // namespace vla
