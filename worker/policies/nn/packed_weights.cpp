#include "worker/policies/nn/packed_weights.hpp"

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

namespace vla {

bool PackedWeights::is_current(const std::vector<at::Tensor>& sources, at::ScalarType dtype) const {
  if (!packed_.defined() || dtype_ != dtype || sources.size() != sources_.size()) return false;
  for (size_t i = 0; i < sources.size(); ++i) {
    const at::Tensor &source = sources[i], &seen = sources_[i];
    if (source.data_ptr() != seen.data_ptr() || source.scalar_type() != seen.scalar_type() || source._version() != versions_[i]) return false;
  }
  return true;
}

const at::Tensor& PackedWeights::get(const std::vector<at::Tensor>& sources, at::ScalarType dtype, const Arrange& arrange) {
  if (is_current(sources, dtype)) return packed_;
  const torch::NoGradGuard no_grad;
  dtype_ = dtype;
  sources_.clear();
  versions_.clear();
  std::vector<at::Tensor> parts;
  for (const at::Tensor& source : sources) {
    versions_.push_back(source._version());
    sources_.push_back(source.detach());
    parts.push_back(sources_.back().to(dtype));
  }
  packed_ = parts.size() == 1 ? parts.front() : at::cat(parts);
  if (arrange) packed_ = arrange(packed_);
  return packed_;
}

at::ScalarType compute_dtype(const at::Tensor& weight) {
  const at::DeviceType device = weight.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : weight.scalar_type();
}

bool is_frozen(const torch::nn::Module& module) {
  return std::ranges::none_of(module.parameters(), [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

}  // namespace vla
