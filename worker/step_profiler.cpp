#include "worker/step_profiler.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "common/error.hpp"

namespace vla {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::set<ActivityType> activities(at::Device device) {
  std::set<ActivityType> wanted{ActivityType::CPU};
  if (device.is_cuda()) wanted.insert(ActivityType::CUDA);
  return wanted;
}

// A trace has the kernels that ran while it was recorded.
void wait_for(at::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace

StepProfiler::~StepProfiler() {
  if (is_recording_) profiler::disableProfiler();
}

void StepProfiler::before_step(int64_t step) {
  if (is_recording_ && step >= end_) finish();
  if (is_recording_ || is_written_ || step < first_ || step >= end_) return;
  wait_for(device_);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities(device_));
  profiler::enableProfiler(config, activities(device_), {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  is_recording_ = true;
}

void StepProfiler::finish() {
  if (!is_recording_) return;
  wait_for(device_);
  is_recording_ = false;
  const auto result = profiler::disableProfiler();
  std::filesystem::create_directories(std::filesystem::absolute(file_).parent_path());
  result->save(file_.string());
  if (!std::filesystem::exists(file_)) throw cxxrun::Error("the trace {} could not be written", file_.string());
  is_written_ = true;
}

}  // namespace vla
