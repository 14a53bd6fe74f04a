// Some episodes of an opened dataset, as a dataset: what is held out, or what is left. Episodes keep their numbers, samples are counted
// anew from 0; features, tasks and statistics stay those of the whole. Immutable; shares the dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/data/dataset.hpp"

namespace vla::data {

// `positions` in dataset->episodes(), ascending. UsageError when there are none.
std::shared_ptr<const Dataset> episode_subset(std::shared_ptr<const Dataset> dataset,
                                              const std::vector<int64_t>& positions);

}  // namespace vla::data
