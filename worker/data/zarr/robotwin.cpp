#include "worker/data/zarr/robotwin.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <future>
#include <set>
#include <thread>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "worker/data/hdf5/hdf5_file.hpp"
#include "worker/data/jpeg_decoder.hpp"
#include "worker/data/zarr/array_writer.hpp"
#include "worker/data/zarr/store_writer.hpp"

namespace vla::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkRows = 100;  // as process_data.py has it
constexpr int64_t kBatchFrames = 64;  // decoded at once

std::string recording_name(int64_t number) { return fmt::format("episode{}.hdf5", number); }

// How many recordings to convert: `wanted`, or all if that is 0. Those from 0 on must be there.
int64_t count_recordings(const std::string& folder, int64_t wanted) {
  if (!fs::is_directory(folder)) throw cxxrun::UsageError("{} is not a folder", folder);
  std::set<int64_t> numbers;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    int64_t number = -1;
    if (name.starts_with("episode")) std::from_chars(name.data() + 7, name.data() + name.size(), number);
    if (number >= 0 && name == recording_name(number)) numbers.insert(number);
  }
  if (numbers.empty()) {
    throw cxxrun::DataError("{} has no episode0.hdf5; RoboTwin's recordings are in data/TASK/SETTING/data", folder);
  }
  int64_t next = 0;
  for (const int64_t number : numbers) {
    if (number != next) break;
    ++next;
  }
  if (wanted > 0 && next < wanted) {
    throw cxxrun::DataError("{} has no {}, but {} episodes are asked for; there are {}: record it, or ask for {}",
                            folder, recording_name(next), wanted, numbers.size(), next);
  }
  if (wanted == 0 && next < static_cast<int64_t>(numbers.size())) {
    throw cxxrun::DataError(
        "{} has no {}, though there are episodes up to {}; record it, or take the first ones with "
        "--episodes {}",
        folder, recording_name(next), *numbers.rbegin(), next);
  }
  return wanted > 0 ? wanted : next;
}

Hdf5Dataset member(const Hdf5File& file, const std::string& group, const std::string& name, const char* remedy) {
  const std::vector<std::string> names = file.names(group);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw cxxrun::DataError("{}: /{} has no '{}', but [{}]; {}", file.path(), group, name, fmt::join(names, ", "),
                            remedy);
  }
  return file.dataset(group + "/" + (group == "observation" ? name + "/rgb" : name));
}

struct Recording {
  Recording(const std::string& path, const std::string& camera)
      : file(path),
        joints(member(file, "joint_action", "vector", "only recordings of RoboTwin 2 can be converted")),
        pictures(member(file, "observation", camera, "choose one of them with --camera")) {
    if (joints.shape().size() != 2 || joints.shape()[1] == 0 || !joints.is_float())
      throw cxxrun::DataError("{} is not a table of floating-point numbers [steps, joints]", joints.place());
    if (pictures.shape().size() != 1 || !pictures.is_fixed_string())
      throw cxxrun::DataError("{} is not a list of JPEG pictures in strings of fixed length", pictures.place());
    if (joints.rows() != pictures.rows()) {
      throw cxxrun::DataError("{} has {} rows, but {} has {}; record the episode again", joints.place(), joints.rows(),
                              pictures.place(), pictures.rows());
    }
    if (joints.rows() < 2) {
      throw cxxrun::DataError("{} has {} rows; an episode needs two or more: record it again", joints.place(),
                              joints.rows());
    }
  }

  Hdf5File file;
  Hdf5Dataset joints;  // [steps, width]
  Hdf5Dataset pictures;  // [steps]

  int64_t frames() const { return joints.rows() - 1; }
  int64_t width() const { return joints.shape()[1]; }
  std::string picture_place(int64_t row) const { return fmt::format("{}, row {}", pictures.place(), row); }
};

// Decodes pictures of one size in several threads.
class PictureDecoder {
 public:
  PictureDecoder(int64_t height, int64_t width, int64_t threads)
      : height_(height), width_(width), decoders_(static_cast<size_t>(threads)) {}

  size_t picture_bytes() const { return static_cast<size_t>(height_ * width_) * 3; }
  // uint8 [count, 3, height, width], valid until the next call.
  std::span<const std::byte> decode(const Recording& recording, int64_t begin, int64_t count) {
    files_.clear();
    for (int64_t row = begin; row < begin + count; ++row) files_.push_back(recording.pictures.read_string(row));
    planes_.resize(static_cast<size_t>(count) * picture_bytes());
    const auto threads = static_cast<int64_t>(decoders_.size());
    std::vector<std::future<void>> running;
    for (int64_t thread = 0; thread < threads; ++thread) {
      running.push_back(std::async(std::launch::async, [&, thread] {
        for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i)
          decode_one(decoders_[static_cast<size_t>(thread)], static_cast<size_t>(i),
                     recording.picture_place(begin + i));
      }));
    }
    for (auto& result : running) result.wait();
    for (auto& result : running) result.get();
    return planes_;
  }

 private:
  void decode_one(JpegDecoder& decoder, size_t i, const std::string& place) {
    const JpegDecoder::Picture picture = decoder.decode(std::as_bytes(std::span(files_[i])), place);
    if (picture.height != height_ || picture.width != width_) {
      throw cxxrun::DataError(
          "{}: the picture is {}x{} (height x width), but the first one {}x{}; all must be of one "
          "kind of camera",
          place, picture.height, picture.width, height_, width_);
    }
    // RoboTwin gives RGB to OpenCV's encoder, which takes it for BGR: the JPEG's blue is the picture's red.
    const size_t pixels = picture_bytes() / 3;
    std::byte* planes = planes_.data() + i * picture_bytes();
    for (size_t channel = 0; channel < 3; ++channel) {
      for (size_t pixel = 0; pixel < pixels; ++pixel)
        planes[channel * pixels + pixel] = std::byte{picture.rgb[pixel * 3 + 2 - channel]};
    }
  }

  int64_t height_, width_;
  std::vector<JpegDecoder> decoders_;  // by thread
  std::vector<std::string> files_;
  std::vector<std::byte> planes_;
};

}  // namespace

void RobotwinOptions::describe(cxxrun::OptionTable& table) {
  table.add("episodes", episodes, "convert the first N only; 0: all").at_least(0);
  table.add("camera", camera, "whose pictures are taken");
  table.add("overwrite", overwrite, "replace OUTPUT if it is a zarr folder");
  table.add("threads", threads, "threads that decode pictures; 0: one a core").at_least(0).at_most(1024);
}

RobotwinResult convert_robotwin(const std::string& recordings, const std::string& output,
                                const RobotwinOptions& options, const std::function<void(int64_t, int64_t)>& progress) {
  RobotwinResult result;
  result.episodes = count_recordings(recordings, options.episodes);
  const auto open = [&](int64_t number) {
    return Recording((fs::path(recordings) / recording_name(number)).string(), options.camera);
  };
  ZarrStoreWriter store(output, options.overwrite);
  // An array's length comes before its rows: all recordings are looked at first.
  std::vector<int64_t> ends;
  for (int64_t number = 0; number < result.episodes; ++number) {
    const Recording recording = open(number);
    if (number == 0) result.width = recording.width();
    if (recording.width() != result.width) {
      throw cxxrun::DataError("{} has {} joints, but {} has {}; recordings of one robot belong together",
                              recording.joints.place(), recording.width(), recording_name(0), result.width);
    }
    ends.push_back(result.frames += recording.frames());
  }
  {
    const Recording first = open(0);
    const std::string file = first.pictures.read_string(0);
    JpegDecoder decoder;
    const auto picture = decoder.decode(std::as_bytes(std::span(file)), first.picture_place(0));
    result.picture_height = picture.height;
    result.picture_width = picture.width;
  }

  const auto array = [&](const std::string& name, std::vector<int64_t> row_shape, ItemType type) {
    row_shape.insert(row_shape.begin(), result.frames);
    return ZarrArrayWriter(store.folder() + "/data/" + name, row_shape, type, kChunkRows);
  };
  ZarrArrayWriter state = array("state", {result.width}, {'f', 4}), action = array("action", {result.width}, {'f', 4}),
                  pictures = array(options.camera, {3, result.picture_height, result.picture_width}, {'u', 1});
  PictureDecoder decoder(result.picture_height, result.picture_width,
                         options.threads > 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency()));
  for (int64_t number = 0; number < result.episodes; ++number) {
    if (progress) progress(number, result.episodes);
    const Recording recording = open(number);
    const int64_t frames = recording.frames();
    if (frames != ends[static_cast<size_t>(number)] - (number == 0 ? 0 : ends[static_cast<size_t>(number - 1)]))
      throw cxxrun::DataError("{} changed during the conversion; start again", recording.file.path());
    const std::vector<float> joints = recording.joints.read_floats();
    const auto row = [&](int64_t step) {
      return std::as_bytes(std::span(joints)).subspan(static_cast<size_t>(step) * state.row_bytes(), state.row_bytes());
    };
    for (int64_t frame = 0; frame < frames; ++frame) {
      state.append(row(frame));
      action.append(row(frame + 1));
    }
    for (int64_t begin = 0; begin < frames; begin += kBatchFrames) {
      auto planes = decoder.decode(recording, begin, std::min(kBatchFrames, frames - begin));
      for (; !planes.empty(); planes = planes.subspan(pictures.row_bytes()))
        pictures.append(planes.first(pictures.row_bytes()));
    }
  }
  ZarrArrayWriter episode_ends(store.folder() + "/meta/episode_ends", {result.episodes}, {'i', 8});
  for (const int64_t& end : ends) episode_ends.append(std::as_bytes(std::span(&end, 1)));
  for (ZarrArrayWriter* writer : {&state, &action, &pictures, &episode_ends}) writer->finish();
  store.commit();
  if (progress) progress(result.episodes, result.episodes);
  return result;
}

}  // namespace vla::data
