// DistributedDataParallel for LibTorch on c10d's own Reducer: gradients are reduced in buckets while backward still runs.
// Owns the module; the only way to run its forward is through forward(), which arms the Reducer, so that no step can go
// unsynchronised. Every rank must run the same forwards in the same order. One thread. Errors: c10::Error; a parameter that took no
// part in the loss is reported by the next forward() unless find_unused_parameters is set.
//
//   cxxrun::DistributedDataParallel<Net> ddp(net, world.group());
//   auto loss = ddp.forward([&](Net& net) { return loss_of(net->forward(x), y); });
//   loss.backward();  // gradients are now equal on all ranks
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>

namespace cxxrun {

class BucketShares;

struct DdpOptions {
  enum class Reduction { kMean, kSum };

  // kMean: each rank's loss is the mean over its own samples, as in PyTorch. kSum: losses are already divided by the global count.
  Reduction reduction = Reduction::kMean;
  // Gradients sent together. Larger buckets use the network better, smaller ones start earlier.
  int64_t bucket_bytes = int64_t{25} << 20;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  // Search the graph for parameters without a gradient in every step. Needed only when the set changes; costs a traversal.
  bool find_unused_parameters = false;
  // The set of used parameters and their order never change: allows a parameter to be unused throughout, or reused.
  bool static_graph = false;
  // Gradients live in the buckets: saves their memory and a copy. LibTorch's Optimizer::zero_grad() cannot clear such gradients (it
  // detaches them in place); clear each with grad.zero_().
  bool gradient_as_bucket_view = false;
  // One rank alone has nothing to reduce: leave its gradients to autograd, without buckets or a check that all were computed.
  bool skip_alone = false;
  // Gradients travel and are added up in this type, as with PyTorch's bf16_compress_hook; they keep their own in .grad. Half the bytes of
  // float32 with kBFloat16, and its rounding.
  std::optional<at::ScalarType> communication_dtype = std::nullopt;
  // Ranks share the optimizer's work: see begin_sharing(). With gradient_as_bucket_view, and the same parameters in every step.
  bool shares_updates = false;
  // With kSum or a communication_dtype: called when a backward has computed its last gradients and is about to send them. What backward()
  // still takes after that is communication that nothing hides. By a thread of autograd.
  std::function<void()> on_last_bucket = nullptr;
};

// The part that does not depend on the module's type.
class DdpReducer {
 public:
  DdpReducer(const torch::nn::Module& module, c10::intrusive_ptr<c10d::ProcessGroup> group, const DdpOptions& options);
  ~DdpReducer();

  void before_forward();
  void after_forward(const std::vector<torch::Tensor>& outputs);
  void set_sync(bool sync);
  bool is_reducing() const;  // false only with skip_alone

  // With shares_updates, after every backward: not null once, after that of the second step, in which the buckets have found their order.
  // From that backward on gradients are sums in this rank's shares alone, and whoever updates parameters must do so by these (bucket_shares.hpp),
  // on all ranks. Moves the parameters.
  BucketShares* begin_sharing();

  // For a function that computes, in backward, the gradient of `weight`: a parameter, or another view of all of it. Where to write it, with
  // `weight`'s strides, so that it need not be copied into its bucket; undefined: nowhere. Once in a step for each parameter, with
  // gradient_as_bucket_view and either kSum or a communication_dtype.
  at::Tensor take_gradient_place(const at::Tensor& weight);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace detail {
inline void collect_tensors(const torch::Tensor& value, std::vector<torch::Tensor>& out) { out.push_back(value); }
template <class T>
void collect_tensors(const T& value, std::vector<torch::Tensor>& out) {
  if constexpr (requires { value.begin(); }) {
    for (const auto& item : value) collect_tensors(item, out);
  } else if constexpr (requires { value.loss; }) {
    collect_tensors(value.loss, out);
  } else {
    std::apply([&](const auto&... items) { (collect_tensors(items, out), ...); }, value);
  }
}
}  // namespace detail

template <class Module>
class DistributedDataParallel {
 public:
  // Broadcasts rank 0's parameters and buffers to all ranks and checks that the modules agree in names, shapes and dtypes.
  DistributedDataParallel(std::shared_ptr<Module> module, c10::intrusive_ptr<c10d::ProcessGroup> group, const DdpOptions& options = {})
      : module_(std::move(module)), reducer_(*module_, std::move(group), options) {}

  // Calls function(module) and returns its result: a tensor, a container or tuple of tensors, or a struct with a member `loss`. Call
  // backward() on it before the next forward().
  template <class Function>
  auto forward(Function&& function) {
    const bool training = at::GradMode::is_enabled();
    if (training) reducer_.before_forward();
    auto result = std::invoke(std::forward<Function>(function), *module_);
    if (training) {
      std::vector<torch::Tensor> outputs;
      detail::collect_tensors(result, outputs);
      reducer_.after_forward(outputs);
    }
    return result;
  }

  // While false, backward() only accumulates into the local gradients; the next synchronised step sends the sum.
  void set_sync(bool sync) { reducer_.set_sync(sync); }
  bool is_reducing() const { return reducer_.is_reducing(); }
  BucketShares* begin_sharing() { return reducer_.begin_sharing(); }
  at::Tensor take_gradient_place(const at::Tensor& weight) { return reducer_.take_gradient_place(weight); }

  // Parameters, state and mode. To train, go through forward().
  const Module& module() const { return *module_; }
  void train(bool on = true) { module_->train(on); }

 private:
  std::shared_ptr<Module> module_;
  DdpReducer reducer_;
};

}  // namespace cxxrun
