// A named stretch of a step, for profilers: an NVTX range (Nsight Systems) and a range of LibTorch's profiler (StepProfiler's traces)
// as long as the object lives. Costs some nanoseconds when nobody looks. Of the thread that makes it; it ranges over what the host
// does, so that inside a captured graph only the capture itself is seen.
#pragma once

#include <ATen/record_function.h>

namespace vla {

class PhaseRange {
 public:
  // `name` must outlive the range: a literal.
  explicit PhaseRange(const char* name);
  PhaseRange(const PhaseRange&) = delete;
  PhaseRange& operator=(const PhaseRange&) = delete;
  ~PhaseRange();

 private:
  at::RecordFunction record_;
};

}  // namespace vla
