// A micro-batch as tensors on the training device. Made from a loader's slot by make_batch(): one copy per field to the device,
// images stay uint8 until they are there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/data/loader.hpp"

namespace vla {

struct Batch {
  // By feature key. Images float32 [B, (T,) 3, H, W] in [0, 1], or uint8 as they were read; states and actions float32 [B, (T,) dim]; "<key>_is_pad" bool
  // [B, T]; index, episode_index, frame_index, task_index int64 [B].
  std::map<std::string, at::Tensor> fields;
  at::Tensor weight;  // float32 [B]: 1, or 0 for rows that only pad the micro-batch
  at::Tensor position;  // int64 [B], in the global batch
  at::Tensor sample;  // int64 [B]: the rows' numbers in the dataset; of batches made from slots
  int64_t step = 0;

  const at::Tensor& at(const std::string& key) const;  // Error naming the key when absent
  bool has(const std::string& key) const { return fields.contains(key); }
  int64_t rows() const { return weight.size(0); }
};

// float32 [B, T]: 1 for actions that count in a loss, 0 for padded steps and padding rows.
at::Tensor valid_actions(const Batch& batch);

// Images, states and actions in another dtype, in place: after normalisation, for which 16 bits would be too coarse.
void convert_features(Batch& batch, at::ScalarType floating);

// `floating` is the dtype of images, states and actions (float32; float64 in tests of equality). `keep_bytes`: images stay uint8, for
// Normalizer::normalize() to convert.
Batch make_batch(const data::Slot& slot, const data::SampleLayout& layout, at::Device device, at::ScalarType floating = at::kFloat, bool keep_bytes = false);

}  // namespace vla
