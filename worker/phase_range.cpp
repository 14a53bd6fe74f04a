#include "worker/phase_range.hpp"

#include <nvtx3/nvToolsExt.h>

namespace vla {

PhaseRange::PhaseRange(const char* name) : record_(at::RecordScope::USER_SCOPE) {
  nvtxRangePushA(name);
  if (record_.isActive()) record_.before(name);
}

PhaseRange::~PhaseRange() { nvtxRangePop(); }

}  // namespace vla
