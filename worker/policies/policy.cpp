#include "worker/policies/policy.hpp"

#include "common/error.hpp"

namespace vla {

void Policy::set_activation_checkpointing(bool on) {
  if (!on) return;
  throw cxxrun::UsageError("training.activation_checkpointing = true: {} has no blocks whose activations could be recomputed: set it to false",
                           name());
}

}  // namespace vla
