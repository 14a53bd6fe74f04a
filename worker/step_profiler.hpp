// Records some steps of a training with LibTorch's profiler (Kineto) and writes them as a Chrome trace, for chrome://tracing and
// ui.perfetto.dev: operations, phases (PhaseRange) and, on a GPU, kernels and copies, those of graphs included. One at a time in a
// process, on the training thread. Steps before and after it run as fast as ever; recorded ones run slower on the host. Errors: Error
// when the file cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>

#include <c10/core/Device.h>

namespace vla {

class StepProfiler {
 public:
  // Records `steps` steps, from the one with the number `first`. 0 steps: does nothing.
  StepProfiler(int64_t first, int64_t steps, std::filesystem::path file, at::Device device)
      : first_(first), end_(first + steps), file_(std::move(file)), device_(device) {}
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;
  ~StepProfiler();  // a trace that has not ended is dropped

  // Before every step: begins the trace, or ends and writes it.
  void before_step(int64_t step);
  // After the last step: writes a trace that has begun.
  void finish();

  const std::filesystem::path& file() const { return file_; }
  bool is_written() const { return is_written_; }

 private:
  int64_t first_, end_;
  std::filesystem::path file_;
  at::Device device_;
  bool is_recording_ = false, is_written_ = false;
};

}  // namespace vla
