// Random changes of training images, on their device: LeRobot's image_transforms (a random subset of colour jitter, sharpness,
// affine and noise) and a random crop that is resized back. A pure function of (seed, step, position in the global batch, camera):
// ranks, micro-batches and their order do not matter, and the frames of one sample change alike. Batched: every sample has
// factors of its own, no loop over samples, nothing waits for the device. Does not normalise. Immutable after construction.
#pragma once

#include <string>
#include <vector>

#include "worker/augment_options.hpp"
#include "worker/batch.hpp"

namespace vla {

class Augmenter {
 public:
  // `cameras` are the keys to change: images of three channels. UsageError for options that make no sense.
  Augmenter(const AugmentOptions& options, std::vector<std::string> cameras, uint64_t seed, at::Device device);

  // Before normalisation: images float [B, (T,) 3, H, W] in [0, 1], and they stay so. Nothing without options.enable.
  void apply(Batch& batch, int64_t step) const;

  // The same for one camera's images, not in place.
  at::Tensor apply(const at::Tensor& images, const at::Tensor& position, const std::string& camera, int64_t step) const;

 private:
  at::Tensor jitter(at::Tensor images, const at::Tensor& position, const std::string& camera, int64_t step) const;
  at::Tensor random_crop(const at::Tensor& images, const at::Tensor& position, const std::string& camera, int64_t step) const;

  AugmentOptions options_;
  std::vector<std::string> cameras_;
  uint64_t seed_;
  // The transforms with a weight, in the order of the options. float32 [n]: their weights; int64 [n]: where their draws stand.
  std::vector<int64_t> transforms_;
  at::Tensor weights_, key_columns_;
};

}  // namespace vla
