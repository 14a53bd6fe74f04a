// Samples as JSON: what a policy is fed at a frame, before normalisation.
#pragma once

#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "worker/data/dataset.hpp"
#include "worker/data/inspect/sample_buffer.hpp"

namespace vla::data {

struct Pixel {
  int64_t y = 0, x = 0;
};

// Reads all observations, actions and the timestamp through one reader that stays open. One thread.
class SamplePrinter {
 public:
  // `chunk` actions from the frame on. Throws DataError if a feature has values that a training would refuse.
  SamplePrinter(std::shared_ptr<const Dataset> dataset, int64_t chunk, std::vector<Pixel> pixels);

  // {"episode", "frame", "index", "timestamp", "task", "observation.state": […], "action": [[…]…], "action_is_pad": […],
  // "images": {key: {"height", "width", "rgb": [[r, g, b]…]}}}. Throws UsageError for an episode or frame that does not exist.
  nlohmann::ordered_json read(int64_t episode, int64_t frame);

 private:
  int64_t find_sample(int64_t episode, int64_t frame) const;
  nlohmann::ordered_json picture(const std::string& key) const;

  std::shared_ptr<const Dataset> dataset_;
  std::vector<Pixel> pixels_;
  SampleBuffer buffer_;
  std::unique_ptr<SampleReader> reader_;
  std::vector<const Feature*> shown_;
  bool has_timestamp_ = false;
};

}  // namespace vla::data
