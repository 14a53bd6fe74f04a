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

// Without samples that begin at the last `count` frames of an episode: their chunks of actions would be mostly padding. The chunks of the
// others still reach into those frames. What is left is counted as LeRobot's EpisodeAwareSampler counts it; episodes of which nothing is
// left are named in a warning. The dataset itself for count 0. UsageError when nothing is left at all.
std::shared_ptr<const Dataset> drop_last_frames(std::shared_ptr<const Dataset> dataset, int64_t count);

}  // namespace vla::data
