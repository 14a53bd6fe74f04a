#include "worker/step_timer.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

namespace vla {

class StepTimer::Mark {
 public:
  Mark() = default;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() {
    if (event_ != nullptr) C10_CUDA_CHECK_WARN(cudaEventDestroy(event_));
  }

  // `external`: into a graph, as an event that can be read outside of it.
  void take(const c10::Stream& stream, bool external) {
    is_set = true;
    if (stream.device_type() == c10::DeviceType::CPU) {
      time_ = std::chrono::steady_clock::now();
      return;
    }
    if (event_ == nullptr) C10_CUDA_CHECK(cudaEventCreate(&event_));
    C10_CUDA_CHECK(cudaEventRecordWithFlags(event_, c10::cuda::CUDAStream(stream).stream(), external ? cudaEventRecordExternal : cudaEventRecordDefault));
  }

  double seconds_since(const Mark& begin) const {
    if (event_ == nullptr) return std::chrono::duration<double>(time_ - begin.time_).count();
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventSynchronize(event_));
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
    return milliseconds / 1e3;
  }

  bool is_set = false;

 private:
  cudaEvent_t event_ = nullptr;
  std::chrono::steady_clock::time_point time_;
};

StepTimer::StepTimer(at::Device device)
    : stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)), captured_(std::make_unique<Step>()) {}

StepTimer::~StepTimer() = default;

void StepTimer::mark(StepMark mark) {
  const auto index = static_cast<size_t>(mark);
  if (stream_.device_type() == c10::DeviceType::CUDA) {
    cudaStreamCaptureStatus status{};
    C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::CUDAStream(stream_).stream(), &status));
    if (status != cudaStreamCaptureStatusNone) return (*captured_)[index].take(stream_, /*external=*/true);
  }
  if (mark == StepMark::kStart && ++used_ > steps_.size()) steps_.push_back(std::make_unique<Step>());
  if (used_ > 0) (*steps_[used_ - 1])[index].take(stream_, /*external=*/false);
}

StepSeconds StepTimer::take() {
  std::array<double, kMarks> sums{};  // [i]: up to mark i
  double count = 0;
  // Adds the phases of a step, seen through `mark_of`.
  const auto add = [](std::array<double, kMarks>& to, const auto& mark_of) {
    const Mark* begin = &mark_of(0);
    for (size_t i = 1; i < kMarks; ++i) {
      const Mark& end = mark_of(i);
      if (!end.is_set) continue;
      to[i] += end.seconds_since(*begin);
      begin = &end;
    }
  };
  constexpr auto kReduced = static_cast<size_t>(StepMark::kReduced), kUpdated = static_cast<size_t>(StepMark::kUpdated);
  double of_graphs = 0;  // between a graph's begin and end
  const Step* last = nullptr;  // step that ran as a graph
  for (size_t i = 0; i < used_; ++i) {
    Step& step = *steps_[i];
    if (step.back().is_set) {
      ++count;
      const double before = sums[kUpdated];
      add(sums, [&](size_t m) -> const Mark& { return step[m]; });
      if (!step[kReduced].is_set && (*captured_)[kReduced].is_set) {
        of_graphs += std::exchange(sums[kUpdated], before) - before;
        last = &step;
      }
    }
  }
  if (last != nullptr) {
    std::array<double, kMarks> split{};
    add(split, [&](size_t m) -> const Mark& { return (*last)[m].is_set ? (*last)[m] : (*captured_)[m]; });
    double whole = 0;
    for (size_t m = 2; m < kMarks; ++m) whole += split[m];
    for (size_t m = 2; m < kMarks && whole > 0; ++m) sums[m] += of_graphs * split[m] / whole;
  }
  for (size_t i = 0; i < used_; ++i) {
    for (Mark& mark : *steps_[i]) mark.is_set = false;
  }
  used_ = 0;
  const auto mean = [&](StepMark mark) { return count > 0 ? sums[static_cast<size_t>(mark)] / count : 0; };
  return {mean(StepMark::kDataReady), mean(StepMark::kForwardDone), mean(StepMark::kBackwardDone), mean(StepMark::kReduced), mean(StepMark::kUpdated)};
}

}  // namespace vla
