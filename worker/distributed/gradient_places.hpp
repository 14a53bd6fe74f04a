// Where the gradients of a training step end up in the Reducer's buckets. The Reducer copies each gradient that was computed elsewhere by a
// kernel of its own; here it finds them in their places already: written there by the function that computed them, which asks with take(),
// or copied, all that are missing by one kernel when a bucket is complete. Places are known from the first backward on, in which the
// Reducer fills its buckets itself. Backward's threads call put(), take() and fill().
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/comm.hpp>

namespace cxxrun {

class GradientPlaces : public std::enable_shared_from_this<GradientPlaces> {
 public:
  // Puts the gradients of `parameters` in their places, except those whose computation a hook of the user's follows.
  void watch(const std::vector<at::Tensor>& parameters);
  void leave();  // `parameters` again

  // A backward follows; it `reduces` gradients, or accumulates them where they are.
  void begin_backward(bool reduces);
  // The gradient of `parameter` has been computed.
  void put(const at::Tensor& parameter);
  // See DdpReducer::take_gradient_place().
  at::Tensor take(const at::Tensor& weight);
  // `bucket` is about to be sent.
  void fill(c10d::GradBucket& bucket);
  // Other buckets follow.
  void forget() { places_.clear(); }

 private:
  struct Place {
    at::Tensor parameter, gradient;
    bool is_taken = false;
  };
  Place* find(const at::Tensor& parameter);  // null: unknown, or not in a backward that reduces

  std::vector<at::Tensor> watched_;
  std::mutex mutex_;
  std::map<const void*, Place> places_;  // by the parameter's memory
  std::vector<at::Tensor> computed_, missing_;  // gradients, and the places that they are not in yet
  bool reduces_ = false;
};

}  // namespace cxxrun
