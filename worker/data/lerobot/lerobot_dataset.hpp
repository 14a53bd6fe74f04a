// LeRobot datasets (v3.0, v2.1, v2.0): parquet rows with numbers and pictures in memory, videos decoded on demand. Opening reads the rows of the
// selected episodes and checks all that can be checked without decoding: bounds, counts, sizes, that every row has its picture.
// Values that are not finite are found by layout(), for the requested features only.
#pragma once

#include "worker/data/dataset.hpp"

namespace vla::data {

bool is_lerobot(const std::string& root);
std::shared_ptr<const Dataset> open_lerobot(const DatasetSpec& spec);

}  // namespace vla::data
