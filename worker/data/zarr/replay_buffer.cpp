#include "worker/data/zarr/replay_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "common/error.hpp"
#include "worker/data/json_file.hpp"

namespace vla::data {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> read_integers(const ZarrArray& array) {
  if (array.shape().size() != 1 || array.type().kind == 'f')
    throw cxxrun::DataError("{}: expected a list of whole numbers", array.name());
  std::vector<int64_t> values;
  for (int64_t block = 0; block < array.block_count(); ++block) {
    const std::vector<std::byte> items = array.read_block(block);
    const size_t before = values.size();
    values.resize(before + static_cast<size_t>(array.rows_of_block(block)));
    convert_items(array.type(), items, DType::kInt64, reinterpret_cast<std::byte*>(values.data() + before));
  }
  return values;
}

}  // namespace

bool ReplayBuffer::is_image(const ZarrArray& array) {
  const auto& shape = array.shape();
  const bool pixels = array.type() == ItemType{'u', 1} || array.type().kind == 'f';
  return pixels && shape.size() == 4 && (shape[1] == 3 || shape[3] == 3);
}

ReplayBuffer::ReplayBuffer(const std::string& folder) : root(folder) {
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  for (const char* part : {"/data", "/meta/episode_ends"}) {
    if (!fs::is_directory(root + part)) {
      throw cxxrun::DataError(
          "{}: no folder '{}'; a zarr replay buffer has data/state, data/action … and meta/episode_ends", root,
          part + 1);
    }
  }
  ends = read_integers(ZarrArray(root + "/meta/episode_ends", "meta/episode_ends"));
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] < (i == 0 ? 0 : ends[i - 1]))
      throw cxxrun::DataError("{}/meta/episode_ends: entry {} is {}, less than the one before", root, i, ends[i]);
  }
  if (frames() < 1) throw cxxrun::DataError("{}/meta/episode_ends: the dataset has no frames", root);

  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(root + "/data", error), end; !error && it != end; it.increment(error)) {
    if (fs::exists(it->path() / ".zarray")) names.push_back(it->path().filename().string());
  }
  if (error) throw cxxrun::DataError("cannot read folder {}/data: {}", root, error.message());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) arrays.emplace_back(root + "/data/" + name, "data/" + name);
  if (arrays.empty()) throw cxxrun::DataError("{}/data: no arrays; the dataset is incomplete, copy it again", root);

  const std::string attributes_path = root + "/.zattrs";
  if (!fs::exists(attributes_path)) return;
  const auto attributes = read_json(attributes_path);
  if (attributes.contains("fps")) {
    fps = get<double>(attributes, "fps", attributes_path);
    if (!(fps > 0) || fps > 1e6)
      throw cxxrun::DataError("{}: fps is {}, expected a positive number", attributes_path, fps);
  }
  for (const char* key : {"task", "instruction"}) {
    if (attributes.contains(key)) task = get<std::string>(attributes, key, attributes_path);
  }
}

}  // namespace vla::data
