#include "worker/policies/policy.hpp"

#include "common/error.hpp"

namespace vla {

torch::Tensor Policy::predict_chunk(const Batch& batch) {
  constexpr uint64_t kSeed = 0;
  return sample_chunk(batch, StepRandom(kSeed, 0, batch.position));
}

void Policy::set_activation_checkpointing(bool on) {
  if (!on) return;
  throw cxxrun::UsageError("training.activation_checkpointing = true: {} has no blocks whose activations could be recomputed: set it to false",
                           name());
}

}  // namespace vla
