// Appends the episodes of several zarr replay buffers into a new one, in the order given. Arrays that some input lacks are left out with
// a note; an array with one row an episode, or one in all, is spread over the frames. Streams chunk by chunk. The new folder appears
// whole or not at all, and nothing is ever overwritten. Throws DataError naming what does not fit, UsageError for the output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vla::data {

struct MergeOptions {
  // Columns of state and action in the result: the last ones of wider inputs, zeros after narrower ones. 0: widths must be equal.
  int64_t action_width = 0;
};

struct MergeResult {
  int64_t episodes = 0, frames = 0;
  std::vector<std::string> arrays, left_out;
};

MergeResult merge_zarr(const std::vector<std::string>& inputs, const std::string& output, const MergeOptions& options);

}  // namespace vla::data
