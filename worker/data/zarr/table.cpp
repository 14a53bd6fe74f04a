#include "worker/data/zarr/table.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {
namespace {

constexpr size_t kSmallRow = 256;  // bytes: arrays other than states and actions are held in memory up to this size
constexpr size_t kMostBroken = 100'000;  // chunks or rows, before it is no dataset any more

}  // namespace

ZarrTable::ZarrTable(const std::string& root, bool skip_broken) : buffer(root) {
  add_features();
  for (size_t i = 0; i < features.size(); ++i) {
    const ZarrArray& array = *columns[i].array;
    check_files(array, skip_broken);
    const FeatureType type = features[i].type;
    if (type == FeatureType::kVisual || (type == FeatureType::kOther && array.row_bytes() > kSmallRow)) continue;
    load_values(i, skip_broken);
  }
}

void ZarrTable::add_features() {
  const auto has = [&](const char* name) {
    return std::any_of(buffer.arrays.begin(), buffer.arrays.end(),
                       [&](const ZarrArray& array) { return array.name() == name; });
  };
  const std::set<std::string> reserved = {"index", "episode_index", "frame_index", "task_index"};
  for (const ZarrArray& array : buffer.arrays) {
    const std::string name = array.name().substr(sizeof "data/" - 1);
    Feature feature{name, FeatureType::kOther, DType::kFloat32, array.row_shape()};
    if (feature.shape.empty()) feature.shape = {1};
    if (ReplayBuffer::is_image(array)) {
      const bool channels_first = array.shape()[1] == 3;
      feature = {"observation.images." + name, FeatureType::kVisual, DType::kUInt8, array.row_shape()};
      if (channels_first) feature.shape = {array.shape()[2], array.shape()[3], 3};
    } else if (name == "state" || (name == "agent_pos" && !has("data/state"))) {
      feature.key = "observation.state";
      feature.type = FeatureType::kState;
    } else if (name == "action") {
      feature.type = FeatureType::kAction;
    } else {
      if (array.type().kind != 'f') feature.dtype = array.type().kind == 'b' ? DType::kBool : DType::kInt64;
      if (reserved.contains(name) || name.starts_with("observation.")) {
        unsupported[name] = "its name has another meaning";
        continue;
      }
    }
    if (array.rows() != buffer.frames()) {
      const std::string reason =
          fmt::format("it has {} rows, but meta/episode_ends ends at {} frames", array.rows(), buffer.frames());
      if (feature.type != FeatureType::kOther) {
        throw cxxrun::DataError("{}/{}: {}; the dataset is incomplete or mixed, copy it again", buffer.root,
                                array.name(), reason);
      }
      unsupported[name] = reason;
      continue;
    }
    features.push_back(std::move(feature));
    columns.push_back({&array});
  }
}

void ZarrTable::check_files(const ZarrArray& array, bool skip_broken) {
  for (int64_t block = 0; block < array.block_count(); ++block) {
    try {
      array.check_block(block);
    } catch (const cxxrun::DataError& error) {
      if (!skip_broken || broken.size() >= kMostBroken) throw;
      const int64_t begin = block * array.rows_per_block();
      broken.push_back({begin, begin + array.rows_of_block(block), error.what()});
    }
  }
}

void ZarrTable::load_values(size_t feature, bool skip_broken) {
  const auto& array = *columns[feature].array;
  auto& values = columns[feature].values;
  const size_t row_bytes = bytes_per_frame(features[feature]);
  values.resize(static_cast<size_t>(array.rows()) * row_bytes);
  for (int64_t block = 0; block < array.block_count(); ++block) {
    const int64_t begin = block * array.rows_per_block(), end = begin + array.rows_of_block(block);
    try {
      convert_items(array.type(), array.read_block(block), features[feature].dtype,
                    values.data() + static_cast<size_t>(begin) * row_bytes);
    } catch (const cxxrun::DataError& error) {
      if (!skip_broken) throw;
      broken.push_back({begin, end, error.what()});
      continue;
    }
    for (int64_t row = begin; skip_broken && features[feature].type != FeatureType::kOther && row < end; ++row) {
      if (first_bad_value(feature, row) >= 0 && broken.size() < kMostBroken)
        broken.push_back({row, row + 1, fmt::format("{}, row {}: not finite", array.name(), row)});
    }
  }
}

const ZarrTable::BrokenRows* ZarrTable::broken_between(int64_t begin, int64_t end) const {
  const auto found = std::find_if(broken.begin(), broken.end(),
                                  [&](const BrokenRows& rows) { return rows.begin < end && begin < rows.end; });
  return found == broken.end() ? nullptr : &*found;
}

int64_t ZarrTable::first_bad_value(size_t feature, int64_t row) const {
  const Column& column = columns[feature];
  if (features[feature].dtype != DType::kFloat32 || column.values.empty()) return -1;
  const int64_t count = element_count(features[feature].shape);
  for (int64_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, column.values.data() + static_cast<size_t>(row * count + i) * sizeof value, sizeof value);
    if (!std::isfinite(value)) return i;
  }
  return -1;
}

}  // namespace vla::data
