// Statistics of a replay buffer, which stores none: mean, standard deviation, least and largest value and count of every feature, over
// all rows in memory and at most 100 frames, evenly spread, of what is not. The same on every machine.
#pragma once

#include "worker/data/zarr/table.hpp"

namespace vla::data {

DatasetStats compute_stats(const ZarrTable& table);

}  // namespace vla::data
