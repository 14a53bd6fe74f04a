// Zarr v2 replay buffers (diffusion policy, RoboTwin) as a dataset: data/state is "observation.state", data/action "action", pictures
// data/NAME are "observation.images.NAME", other arrays keep their names and are no observations. States and actions are in memory;
// pictures are read on demand, one frame out of a chunk where the compression allows it. Opening checks that every chunk file is there
// and as long as it says. Statistics are computed from the data, those of pictures from at most 100 frames. Buffers tell neither
// tasks nor, mostly, frames per second: "fps" and "task" of .zattrs, else 10 and no text.
#pragma once

#include "worker/data/dataset.hpp"

namespace vla::data {

bool is_zarr(const std::string& root);
std::shared_ptr<const Dataset> open_zarr(const DatasetSpec& spec);

}  // namespace vla::data
