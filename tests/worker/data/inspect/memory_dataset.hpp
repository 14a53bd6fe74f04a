// A dataset whose every number and pixel a test can set.
#pragma once

#include <algorithm>
#include <cstring>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {

// `episodes` of `length` frames of 10 frames/s. State [2] and action [1] move, the camera (2x2) gets brighter; statistics are true.
class MemoryDataset : public Dataset {
 public:
  MemoryDataset(int64_t episodes, int64_t length) {
    for (int64_t e = 0; e < episodes; ++e) {
      episodes_.push_back({e, e * length, (e + 1) * length});
      for (int64_t frame = 0; frame < length; ++frame) {
        const auto value = static_cast<float>(e + frame);
        numbers["observation.state"].insert(numbers["observation.state"].end(), {value, -value});
        numbers["action"].push_back(2 * value);
        numbers["timestamp"].push_back(static_cast<float>(frame) / 10);
        pictures.emplace_back(12, static_cast<std::byte>(10 * frame));
        task_index.push_back(0);
      }
    }
  }

  std::map<std::string, std::vector<float>> numbers;
  std::vector<std::vector<std::byte>> pictures;  // of each frame; empty: cannot be decoded
  std::vector<int64_t> task_index;
  DatasetStats statistics;

  std::string description() const override { return "memory"; }
  int64_t size() const override { return episodes_.back().end; }
  double fps() const override { return 10; }
  const std::vector<Feature>& features() const override { return features_; }
  const DatasetStats& stats() const override { return statistics; }
  const std::vector<Episode>& episodes() const override { return episodes_; }
  const std::vector<std::string>& tasks() const override { return tasks_; }
  SampleLayout layout(const SampleRequest& request) const override { return make_layout(features_, request); }
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override {
    return std::make_unique<Reader>(*this, request);
  }

 private:
  class Reader : public FrameReader {
   public:
    Reader(const MemoryDataset& dataset, const SampleRequest& request)
        : FrameReader(dataset, request), dataset_(dataset) {}

   private:
    void read_frame(size_t feature, int64_t sample, std::byte* out) override {
      const Feature& described = dataset_.features_[feature];
      const auto row = static_cast<size_t>(sample);
      if (described.type == FeatureType::kVisual) {
        const std::vector<std::byte>& picture = dataset_.pictures[row];
        if (picture.empty())
          throw cxxrun::DataError("cam.mp4: frame {} cannot be decoded; copy the file again", sample);
        std::copy(picture.begin(), picture.end(), out);
        return;
      }
      const std::vector<float>& values = dataset_.numbers.at(described.key);
      const size_t bytes = bytes_per_frame(described);
      std::memcpy(out, reinterpret_cast<const std::byte*>(values.data()) + row * bytes, bytes);
    }
    std::array<int64_t, 4> keys(int64_t sample) override {
      const Episode& episode = episode_of(dataset_.episodes_, sample);
      return {sample, episode.index, sample - episode.begin, dataset_.task_index[static_cast<size_t>(sample)]};
    }
    const MemoryDataset& dataset_;
  };

  std::vector<Feature> features_ = {{"observation.image", FeatureType::kVisual, DType::kUInt8, {2, 2, 3}},
                                    {"observation.state", FeatureType::kState, DType::kFloat32, {2}},
                                    {"action", FeatureType::kAction, DType::kFloat32, {1}},
                                    {"timestamp", FeatureType::kOther, DType::kFloat32, {1}}};
  std::vector<Episode> episodes_;
  std::vector<std::string> tasks_ = {"Pick"};
};

}  // namespace vla::data
