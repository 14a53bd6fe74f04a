// A policy's weights from a file that somebody else saved (weights_file.hpp).
#pragma once

#include "worker/checkpoint/weights_file.hpp"
#include "worker/policies/policy.hpp"

namespace vla {

// Reads weights into the policy. Missing, unknown and mis-shaped tensors are one Error with their numbers and first names.
void load_weights(const std::filesystem::path& path, Policy& policy);

}  // namespace vla
