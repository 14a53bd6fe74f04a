#include "worker/data/zarr/merge.hpp"

#include <algorithm>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/data/zarr/array_writer.hpp"
#include "worker/data/zarr/replay_buffer.hpp"
#include "worker/data/zarr/store_writer.hpp"

namespace vla::data {
namespace {

const ZarrArray* find_array(const ReplayBuffer& buffer, const std::string& name) {
  const auto found = std::find_if(buffer.arrays.begin(), buffer.arrays.end(),
                                  [&](const ZarrArray& array) { return array.name() == name; });
  return found == buffer.arrays.end() ? nullptr : &*found;
}

// Rows of one input's array by frame, read once from front to back.
class FrameRows {
 public:
  FrameRows(const ReplayBuffer& buffer, const ZarrArray& array) : buffer_(buffer), array_(array) {
    const auto episodes = static_cast<int64_t>(buffer.ends.size());
    if (array.rows() != buffer.frames() && array.rows() != episodes && array.rows() != 1) {
      throw cxxrun::DataError("{}/{}: {} rows, but meta/episode_ends tells {} frames in {} episodes", buffer.root,
                              array.name(), array.rows(), buffer.frames(), episodes);
    }
  }
  // Requires: not less than the frame before.
  std::span<const std::byte> row(int64_t frame) {
    int64_t row = frame;
    if (array_.rows() != buffer_.frames()) {
      row = array_.rows() == 1
                ? 0
                : std::upper_bound(buffer_.ends.begin(), buffer_.ends.end(), frame) - buffer_.ends.begin();
    }
    if (row / array_.rows_per_block() != block_) {
      block_ = row / array_.rows_per_block();
      rows_ = array_.read_block(block_);
    }
    const auto at = static_cast<size_t>(row % array_.rows_per_block()) * array_.row_bytes();
    return std::span(rows_).subspan(at, array_.row_bytes());
  }

 private:
  const ReplayBuffer& buffer_;
  const ZarrArray& array_;
  int64_t block_ = -1;
  std::vector<std::byte> rows_;
};

bool has_width(const std::string& name, const ZarrArray& array) {
  return (name == "data/state" || name == "data/action") && array.shape().size() == 2;
}

std::vector<int64_t> merged_row_shape(const std::vector<ReplayBuffer>& buffers, const std::string& name,
                                      int64_t action_width) {
  const ZarrArray& first = *find_array(buffers.front(), name);
  for (const ReplayBuffer& buffer : buffers) {
    const ZarrArray& array = *find_array(buffer, name);
    const bool widths_may_differ = action_width > 0 && has_width(name, first) && has_width(name, array);
    if (array.type() == first.type() && (array.row_shape() == first.row_shape() || widths_may_differ)) continue;
    throw cxxrun::DataError(
        "{}/{} has rows of {} [{}], but {} has {} [{}]{}", buffer.root, name, array.type().name(),
        fmt::join(array.row_shape(), ", "), buffers.front().root, first.type().name(),
        fmt::join(first.row_shape(), ", "),
        has_width(name, first) ? "; --action-width chooses a common width" : "; convert one of them first");
  }
  if (action_width > 0 && has_width(name, first)) return {action_width};
  return first.row_shape();
}

void merge_array(const std::vector<ReplayBuffer>& buffers, const std::string& name, int64_t frames,
                 int64_t action_width, const std::string& folder) {
  const std::vector<int64_t> row_shape = merged_row_shape(buffers, name, action_width);
  std::vector<int64_t> shape = {frames};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  ZarrArrayWriter writer(folder + "/" + name, shape, find_array(buffers.front(), name)->type());
  std::vector<std::byte> padded(writer.row_bytes());
  for (const ReplayBuffer& buffer : buffers) {
    FrameRows rows(buffer, *find_array(buffer, name));
    std::fill(padded.begin(), padded.end(), std::byte{0});  // what follows narrower rows
    for (int64_t frame = 0; frame < buffer.frames(); ++frame) {
      std::span<const std::byte> row = rows.row(frame);
      if (row.size() > padded.size()) row = row.last(padded.size());
      std::copy(row.begin(), row.end(), padded.begin());
      writer.append(padded);
    }
  }
  writer.finish();
}

}  // namespace

MergeResult merge_zarr(const std::vector<std::string>& inputs, const std::string& output, const MergeOptions& options) {
  if (inputs.empty()) throw cxxrun::UsageError("no zarr folders to merge");
  if (options.action_width < 0) throw cxxrun::UsageError("the action width must be positive");
  ZarrStoreWriter store(output);

  std::vector<ReplayBuffer> buffers;
  MergeResult result;
  std::vector<int64_t> ends;
  for (const std::string& input : inputs) {
    const ReplayBuffer& buffer = buffers.emplace_back(input);
    for (const int64_t end : buffer.ends) ends.push_back(result.frames + end);
    result.frames += buffer.frames();
  }
  result.episodes = static_cast<int64_t>(ends.size());
  for (const ReplayBuffer& buffer : buffers) {
    for (const ZarrArray& array : buffer.arrays) {
      const bool common = std::all_of(buffers.begin(), buffers.end(),
                                      [&](const ReplayBuffer& other) { return find_array(other, array.name()); });
      auto& list = common ? result.arrays : result.left_out;
      if (std::find(list.begin(), list.end(), array.name()) != list.end()) continue;
      list.push_back(array.name());
      if (!common) cxxrun::log_warning("'{}' is left out: not all inputs have it", array.name());
    }
  }
  if (result.arrays.empty()) throw cxxrun::DataError("the inputs have no array in common");
  for (const std::string& name : result.arrays) merged_row_shape(buffers, name, options.action_width);

  for (const std::string& name : result.arrays)
    merge_array(buffers, name, result.frames, options.action_width, store.folder());
  ZarrArrayWriter writer(store.folder() + "/meta/episode_ends", {result.episodes}, ItemType{'i', 8});
  for (const int64_t& end : ends) writer.append(std::as_bytes(std::span(&end, 1)));
  writer.finish();
  const auto same = [&](auto member) {
    return std::all_of(buffers.begin(), buffers.end(),
                       [&](const ReplayBuffer& b) { return b.*member == buffers.front().*member; });
  };
  nlohmann::ordered_json attributes = nlohmann::ordered_json::object();
  if (buffers.front().fps > 0 && same(&ReplayBuffer::fps)) attributes["fps"] = buffers.front().fps;
  if (!buffers.front().task.empty() && same(&ReplayBuffer::task)) attributes["task"] = buffers.front().task;
  if (!attributes.empty()) cxxrun::write_file_atomically(store.folder() + "/.zattrs", attributes.dump(4));
  store.commit();
  return result;
}

}  // namespace vla::data
