#include "worker/step_timer.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace vla {

StepTimer::StepTimer(at::Device device) : stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)) {}

void StepTimer::mark(StepMark mark) {
  if (mark == StepMark::kStart && ++used_ > steps_.size()) steps_.emplace_back();
  if (used_ == 0) return;
  Mark& at = steps_[used_ - 1][static_cast<size_t>(mark)];
  at.is_set = true;
  if (stream_.device_type() == c10::DeviceType::CPU) {
    at.time = std::chrono::steady_clock::now();
  } else {
    if (!at.event) at.event.emplace(stream_.device_type(), c10::EventFlag::BACKEND_DEFAULT);
    at.event->record(stream_);
  }
}

double StepTimer::seconds_between(const Mark& begin, const Mark& end) {
  if (begin.event) return begin.event->elapsedTime(*end.event) / 1e3;
  return std::chrono::duration<double>(end.time - begin.time).count();
}

StepSeconds StepTimer::take() {
  std::array<double, kMarks> sums{};  // [i]: up to mark i
  double count = 0;
  for (size_t i = 0; i < used_; ++i) {
    Step& step = steps_[i];
    if (Mark& last = step.back(); last.is_set) {
      if (last.event) last.event->synchronize();
      ++count;
      const Mark* begin = &step.front();
      for (size_t m = 1; m < kMarks; ++m) {
        if (!step[m].is_set) continue;
        sums[m] += seconds_between(*begin, step[m]);
        begin = &step[m];
      }
    }
    for (Mark& mark : step) mark.is_set = false;
  }
  used_ = 0;
  const auto mean = [&](StepMark mark) { return count > 0 ? sums[static_cast<size_t>(mark)] / count : 0; };
  return {mean(StepMark::kDataReady), mean(StepMark::kBackwardDone), mean(StepMark::kReduced), mean(StepMark::kUpdated)};
}

}  // namespace vla
