// RoboTwin's raw recordings (episode0.hdf5, episode1.hdf5, … of one task and setting) as a zarr replay buffer, with the values of
// RoboTwin's own process_data.py: of T recorded steps, frame j has state and picture of step j and as action the joints of step j + 1,
// so an episode has T - 1 frames. Arrays data/state and data/action float32 [frames, width], data/CAMERA uint8 [frames, 3, height,
// width], meta/episode_ends int64. Streams; the result appears whole or not at all. Throws DataError naming file, dataset and row,
// UsageError for the output.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/option_table.hpp"

namespace vla::data {

struct RobotwinOptions {
  int64_t episodes = 0;  // the first ones; 0: all
  std::string camera = "head_camera";
  bool overwrite = false;
  int64_t threads = 0;  // 0: one a core

  void describe(cxxrun::OptionTable& table);
};

struct RobotwinResult {
  int64_t episodes = 0, frames = 0, width = 0, picture_height = 0, picture_width = 0;
};

// `progress`: called with episodes done and episodes in all; may be empty.
RobotwinResult convert_robotwin(const std::string& recordings, const std::string& output,
                                const RobotwinOptions& options,
                                const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace vla::data
