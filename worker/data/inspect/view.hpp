// One episode as a picture: pictures of every camera over time, state and action curves, task. Frames that cannot be read are drawn as
// such. One thread.
#pragma once

#include <string>

#include "worker/data/dataset.hpp"

namespace vla::data {

// `dataset` has the one episode to draw; `root` is where it was opened. Returns an SVG file.
std::string draw_episode(const Dataset& dataset, const std::string& root, int64_t frames_shown);

}  // namespace vla::data
