// What every dataset format offers: a description of its features and random access to samples, written as bytes into the
// slots of the loader's ring. Plain C++, no Torch. A Dataset is immutable after construction and shared by threads; a
// SampleReader holds open decoders and belongs to one thread. Everything wrong with the data throws cxxrun::DataError
// naming file, row or frame, and the remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vla::data {

enum class DType : uint8_t { kUInt8, kBool, kInt64, kFloat32 };
size_t size_of(DType dtype);

enum class FeatureType : uint8_t { kVisual, kState, kEnvironment, kAction, kOther };

struct Feature {
  std::string key;  // "observation.image"
  FeatureType type = FeatureType::kOther;
  DType dtype = DType::kFloat32;  // of a sample in a slot; images are uint8
  std::vector<int64_t> shape;  // of one frame; images [height, width, channels], RGB
};

struct StatTensor {
  std::vector<int64_t> shape;  // images [3, 1, 1]
  std::vector<double> values;  // row-major
};
// feature key -> "mean" | "std" | "min" | "max" | "count" | "q01" ... -> values. Images are in [0, 1].
using DatasetStats = std::map<std::string, std::map<std::string, StatTensor>>;

struct Episode {
  int64_t index = 0;  // number in the dataset
  int64_t begin = 0, end = 0;  // sample numbers [begin, end) of this Dataset (after the episode filter)
};

// One field of a sample that a policy asks for.
struct FieldRequest {
  std::string key;
  // Frame offsets to read around the sample's frame; frames outside the episode repeat its first or last one and are marked in
  // "<key>_is_pad". Empty: the frame itself, without a time axis and without a mask.
  std::vector<int64_t> deltas;
};
using SampleRequest = std::vector<FieldRequest>;

// Where a field stands in a slot: rows * bytes_per_row contiguous bytes at `offset(rows)`, row-major [rows, shape...].
struct Field {
  std::string key;  // as requested, or "<key>_is_pad" (bool, shape [T])
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;  // of one sample, the time axis first where there is one; images [(T,) H, W, C]
  size_t bytes_per_row = 0;
};

// The fields of a batch, in order. Always ends with "index", "episode_index", "frame_index" and "task_index" (int64, shape []).
struct SampleLayout {
  std::vector<Field> fields;
  // Byte offset of each field in a slot of `rows` samples; every field starts at a multiple of 64. Last entry: the slot's size.
  std::vector<size_t> offsets(int64_t rows) const;
};

class SampleReader {
 public:
  virtual ~SampleReader() = default;
  // Writes sample `index` (0 <= index < Dataset::size()); destination[i] has layout.fields[i].bytes_per_row bytes.
  virtual void read(int64_t index, std::span<std::byte* const> destination) = 0;
  // Samples [first, second) of the same episode whose pictures are decoded from the same key frame as those of `index`: read in order,
  // all of them cost little more than the last. A hint for caches, exact or not.
  virtual std::pair<int64_t, int64_t> decoding_group(int64_t index) { return {index, index + 1}; }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::string description() const = 0;  // "LeRobot v3.0, /data/pusht"
  virtual int64_t size() const = 0;  // samples = frames of the selected episodes
  virtual double fps() const = 0;
  virtual const std::vector<Feature>& features() const = 0;  // in the dataset's order
  virtual const DatasetStats& stats() const = 0;
  virtual const std::vector<Episode>& episodes() const = 0;
  virtual const std::vector<std::string>& tasks() const = 0;  // by task_index
  virtual int64_t broken_episodes() const { return 0; }  // left out because of DatasetSpec::skip_broken
  // Throws UsageError for a key the dataset lacks (naming the nearest).
  virtual SampleLayout layout(const SampleRequest& request) const = 0;
  virtual std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const = 0;
};

// How a dataset is opened; `describe`d under "dataset" in the training config.
struct DatasetSpec {
  std::string root;
  std::vector<int64_t> episodes = {};  // empty = all
  double tolerance_s = 1e-4;  // largest difference between a row's timestamp and its video frame's
  // Leave out episodes whose files are missing, truncated or inconsistent, with a warning each, instead of failing.
  bool skip_broken = false;
};

// Detects the format in `spec.root` among those of registry.cpp.
std::shared_ptr<const Dataset> open_dataset(const DatasetSpec& spec);

}  // namespace vla::data
