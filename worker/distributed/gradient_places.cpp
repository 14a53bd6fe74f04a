#include "worker/distributed/gradient_places.hpp"

#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

namespace cxxrun {
namespace {

struct PutHook : torch::autograd::PostAccumulateGradHook {
  explicit PutHook(std::shared_ptr<GradientPlaces> to) : places(std::move(to)) {}
  void operator()(const at::Tensor& parameter) override { places->put(parameter); }
  std::shared_ptr<GradientPlaces> places;
};

}  // namespace

void GradientPlaces::watch(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<PutHook>(shared_from_this()));
    watched_.push_back(parameter);
  }
}

void GradientPlaces::leave() {
  for (const at::Tensor& parameter : watched_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void GradientPlaces::begin_backward(bool reduces) {
  const std::lock_guard lock(mutex_);
  reduces_ = reduces;
  computed_.clear();  // of a backward that failed
  missing_.clear();
  for (auto& [memory, place] : places_) place.is_taken = false;
}

GradientPlaces::Place* GradientPlaces::find(const at::Tensor& parameter) {
  const auto found = reduces_ ? places_.find(parameter.const_data_ptr()) : places_.end();
  return found == places_.end() ? nullptr : &found->second;
}

void GradientPlaces::put(const at::Tensor& parameter) {
  const std::lock_guard lock(mutex_);
  const Place* place = find(parameter);
  at::Tensor& gradient = parameter.mutable_grad();
  if (place == nullptr || !place->parameter.is_same(parameter) || gradient.is_alias_of(place->gradient) || gradient.requires_grad()) return;
  computed_.push_back(std::exchange(gradient, place->gradient));
  missing_.push_back(place->gradient);
}

at::Tensor GradientPlaces::take(const at::Tensor& weight) {
  constexpr uintptr_t kAlignment = 16;  // of what products write fast
  const std::lock_guard lock(mutex_);
  Place* place = find(weight);
  if (place == nullptr || place->is_taken || place->parameter.grad().defined()) return {};
  const at::Tensor &parameter = place->parameter, &gradient = place->gradient;
  // Both must be all of the same memory, in the same order.
  if (weight.numel() != parameter.numel() || weight.scalar_type() != gradient.scalar_type() || !weight.is_non_overlapping_and_dense() ||
      !parameter.is_non_overlapping_and_dense() || parameter.strides() != gradient.strides() ||
      reinterpret_cast<uintptr_t>(gradient.const_data_ptr()) % kAlignment != 0) {
    return {};
  }
  place->is_taken = true;
  return gradient.as_strided(weight.sizes(), weight.strides(), gradient.storage_offset());
}

void GradientPlaces::fill(c10d::GradBucket& bucket) {
  const std::lock_guard lock(mutex_);
  if (!missing_.empty()) at::_foreach_copy_(missing_, computed_);
  computed_.clear();
  missing_.clear();
  for (const at::Tensor& parameter : bucket.getParameters()) {
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined() && gradient.is_alias_of(bucket.getBufferRef())) places_.try_emplace(parameter.const_data_ptr(), parameter, gradient);
  }
  if (bucket.isLast()) reduces_ = false;
}

}  // namespace cxxrun
