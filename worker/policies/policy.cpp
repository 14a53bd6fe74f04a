#include "worker/policies/policy.hpp"

#include "common/error.hpp"

namespace vla {

void PolicyOptions::describe_lerobot_keys(cxxrun::OptionTable& table) {
  table.add("lerobot_keys", lerobot_keys_,
            "LeRobot's keys of a checkpoint's config.json that are no options here, as JSON; checkpoints made from it get them again");
}

std::vector<ParameterGroup> Policy::parameter_groups() {
  ParameterGroup group{.name = "model", .lr = 0, .parameters = {}};
  for (const auto& entry : named_parameters()) {
    if (entry.value().requires_grad()) group.parameters.emplace_back(entry.key(), entry.value());
  }
  return {group};
}

torch::Tensor Policy::predict_chunk(const Batch& batch) {
  constexpr uint64_t kSeed = 0;
  return sample_chunk(batch, StepRandom(kSeed, 0, batch.position));
}

const char* name_of(FrozenLevel level) { return level == FrozenLevel::kVision ? "vision" : "prefix"; }

std::string frozen_key(FrozenLevel level) { return std::string("frozen.") + name_of(level); }

torch::Tensor Policy::frozen_features(FrozenLevel level, const Batch&) {
  throw cxxrun::UsageError("training.frozen_cache = {}: {} has no frozen part whose results could be kept: set it to off", name_of(level), name());
}

void Policy::set_activation_checkpointing(bool on) {
  if (!on) return;
  throw cxxrun::UsageError("training.activation_checkpointing = true: {} has no blocks whose activations could be recomputed: set it to false",
                           name());
}

}  // namespace vla
