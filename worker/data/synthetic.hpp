// A small dataset computed from its sample numbers, for tests and benchmarks: root
// "synthetic:frames=64,state=4,action=4,image=32x32,cameras=1,episodes=4,task_count=1" (all optional; without image= there is no
// camera; all cameras show the same).
// The action is a linear function of the state, so that a linear policy learns it; the picture's colours follow the state.
#pragma once

#include "worker/data/dataset.hpp"

namespace vla::data {

bool is_synthetic(const std::string& root);
std::shared_ptr<const Dataset> open_synthetic(const DatasetSpec& spec);

}  // namespace vla::data
