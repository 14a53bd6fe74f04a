// Makes samples of single frames: time windows clamped to the episode, padding masks, the four bookkeeping fields. A dataset
// format implements read_frame() and keys(); everything else about a sample is decided here. A FrameReader refers to its
// dataset, which must outlive it. One thread.
#pragma once

#include <array>

#include "worker/data/dataset.hpp"

namespace vla::data {

int64_t element_count(const std::vector<int64_t>& shape);
size_t bytes_per_frame(const Feature& feature);

// "observation.environment_state" -> kEnvironment, other "observation*" -> kState, "action*" -> kAction.
FeatureType numeric_feature_type(const std::string& key);

// Throws UsageError for an unknown key (naming the nearest), a key asked for twice.
SampleLayout make_layout(const std::vector<Feature>& features, const SampleRequest& request);

// Numbers of the episodes of `wanted` in ascending order, all of them if it is empty. UsageError for one that does not exist or is
// named twice.
std::vector<int64_t> selected_episodes(std::vector<int64_t> wanted, int64_t total);

// Requires: 0 <= sample < end of the last episode.
const Episode& episode_of(const std::vector<Episode>& episodes, int64_t sample);

class FrameReader : public SampleReader {
 public:
  void read(int64_t index, std::span<std::byte* const> destination) final;
  std::pair<int64_t, int64_t> decoding_group(int64_t index) final;

 protected:
  FrameReader(const Dataset& dataset, const SampleRequest& request);

  // Writes the value of Dataset::features()[feature] at sample `sample`: bytes_per_frame() bytes.
  virtual void read_frame(size_t feature, int64_t sample, std::byte* out) = 0;
  // index, episode_index, frame_index, task_index
  virtual std::array<int64_t, 4> keys(int64_t sample) = 0;
  // SampleReader::decoding_group for one feature.
  virtual std::pair<int64_t, int64_t> frame_decoding_group(size_t feature, int64_t sample);

 private:
  struct Window {
    size_t feature;
    size_t bytes;
    std::vector<int64_t> deltas;
  };
  const Dataset& dataset_;
  std::vector<Window> windows_;
};

}  // namespace vla::data
