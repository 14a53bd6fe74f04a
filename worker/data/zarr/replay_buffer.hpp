// A zarr replay buffer as diffusion policy and RoboTwin write it: data/* with one row a frame, meta/episode_ends. Reads the metadata of every
// array and the ends of the episodes, no frames. Throws DataError naming file, key and remedy.
#pragma once

#include <string>
#include <vector>

#include "worker/data/zarr/array.hpp"

namespace vla::data {

struct ReplayBuffer {
  explicit ReplayBuffer(const std::string& root);

  int64_t frames() const { return ends.back(); }
  // "img", "head_camera": rows of [3, height, width] or [height, width, 3]
  static bool is_image(const ZarrArray& array);

  std::string root;
  std::vector<int64_t> ends;  // of each episode, exclusive; not descending
  std::vector<ZarrArray> arrays;  // of data/, by name
  double fps = 0;  // of .zattrs; 0: not told
  std::string task;  // of .zattrs: "task" or "instruction"
};

}  // namespace vla::data
