// A team: the threads that work on one thing together. Kernels written against it have one arithmetic for the threads of a warp or a block
// (team.cuh) and the CPU's one. Each is number lane() of lanes(); sum() adds up over all and gives every one the result. No Torch.
#pragma once

#include "worker/cuda/pack.hpp"

namespace vla {

struct OneThread {
  VLA_HOST_DEVICE int lane() const { return 0; }
  VLA_HOST_DEVICE int lanes() const { return 1; }
  template <class R>
  VLA_HOST_DEVICE R sum(R x) const {
    return x;
  }
};

}  // namespace vla
