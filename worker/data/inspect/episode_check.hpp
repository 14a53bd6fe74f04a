// Reads an episode frame by frame and notes what is wrong with it: numbers that are not finite, timestamps beside the grid of the
// frame rate, unknown tasks, pictures that cannot be decoded or never change. An EpisodeChecker keeps its readers and decoders open
// between episodes and belongs to one thread. What is wrong with the data becomes a Finding, not an exception.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "worker/data/dataset.hpp"
#include "worker/data/inspect/episode_files.hpp"
#include "worker/data/inspect/finding.hpp"
#include "worker/data/inspect/moments.hpp"
#include "worker/data/inspect/sample_buffer.hpp"

namespace vla::data {

struct EpisodeSummary {
  std::vector<Finding> findings;
  // By feature of the dataset: of each number of a frame (only finite ones), or of the three channels of a camera in [0, 1], where
  // only count and mean are known.
  std::vector<std::vector<Moments>> moments;
};

class EpisodeChecker {
 public:
  struct Options {
    bool decode = true;  // read the pictures, too
    double tolerance_s = 1e-4;  // of timestamps
  };
  // Both must outlive this object.
  EpisodeChecker(const Dataset& dataset, const EpisodeFiles& files, Options options);

  EpisodeSummary check(const Episode& episode);

 private:
  struct Reader {
    SampleBuffer buffer;
    std::unique_ptr<SampleReader> reader;
  };
  Reader open(const SampleRequest& request) const;
  void check_numbers(const Episode& episode, EpisodeSummary& out);
  void check_camera(const Episode& episode, size_t feature, EpisodeSummary& out);

  const Dataset& dataset_;
  const EpisodeFiles& files_;
  Options options_;
  Reader numbers_;
  std::vector<Reader> cameras_;  // by feature; without a reader where there is no camera
};

}  // namespace vla::data
