// What the frozen parts of a policy make of every sample, computed once before training (training.frozen_cache): then steps read no
// images and run only what learns. A pass of its own, not the first epoch: every step has the same shape from the start, no rank waits for
// another's choice of samples, and rows cost the same whenever they come. Lies in the GPU's memory if it fits, else in the process's, or
// in a file that the ranks of a node and later runs share. Made by all ranks together. UsageError where there is nothing to keep or no
// room for it. One thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "worker/batch.hpp"
#include "worker/data/frame_cache.hpp"
#include "worker/distributed/process_group.hpp"
#include "worker/policies/policy.hpp"

namespace vla {

// Of training.frozen_cache; none for "off". UsageError with augmentation, which makes every sample's images new each time.
std::optional<FrozenLevel> frozen_level(const std::string& name, bool augmented);

// 16 hexadecimal digits, of all parameters that do not learn.
std::string frozen_fingerprint(const Policy& policy);

// Those of a request that frozen features do not stand for.
data::SampleRequest without_images(const data::SampleRequest& request, const PolicyFeatures& features);

struct FrozenCacheOptions {
  FrozenLevel level = FrozenLevel::kVision;
  double gb = 0;  // 10^9 bytes of the GPU's memory; 0 = half of what is free
  std::filesystem::path folder = {};  // where the file is kept if the GPU's memory is too small; empty = in the process's memory
  std::function<std::string()> identity = {};  // of weights, preprocessing and data; asked for where there is a file
};

class FrozenCache {
 public:
  // Of a slot as training sees it: [B, ...] on the training device.
  using Features = std::function<torch::Tensor(const data::Slot& slot, const data::SampleLayout& layout)>;

  // `loader` and `request` are those of training, whose batches' size is taken.
  FrozenCache(const FrozenCacheOptions& options, std::shared_ptr<const data::Dataset> dataset, const data::SampleRequest& request,
              const data::LoaderOptions& loader, const Features& features, const cxxrun::World& world);

  // The batch's field frozen_key(level).
  void add_to(Batch& batch, const data::Slot& slot) const;
  bool is_on_device() const { return table_.defined(); }
  uint64_t bytes() const { return frames_.total_bytes(); }

 private:
  void choose_place(const FrozenCacheOptions& options, const torch::Tensor& example, const cxxrun::World& world);
  void keep(const torch::Tensor& features, const data::Slot& slot);

  FrozenLevel level_;
  data::FrameSet frames_;
  torch::Tensor table_;  // [samples, ...] on the device
  std::unique_ptr<data::FrameCache> rows_;  // or here
  torch::Tensor example_;  // [1, ...] on the device, its values unused
};

}  // namespace vla
