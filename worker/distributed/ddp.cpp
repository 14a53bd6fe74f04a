#include "worker/distributed/ddp.hpp"

#include <algorithm>

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "common/error.hpp"

namespace cxxrun {
namespace {

// c10d's Reducer divides by the number of ranks; with a hook it takes what the hook returns.
class SumHook : public c10d::CommHookInterface {
 public:
  SumHook(c10::intrusive_ptr<c10d::ProcessGroup> group, std::function<void()> on_last_bucket)
      : group_(std::move(group)), on_last_bucket_(std::move(on_last_bucket)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    if (on_last_bucket_ && bucket.isLast()) on_last_bucket_();
    std::vector<at::Tensor> tensors{bucket.getBufferRef()};
    return group_->allreduce(tensors)->getFuture();
  }

  at::Tensor parseHookResult(const c10::IValue& result) override { return c10d::detail::parseCppCommHookResult(result); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::function<void()> on_last_bucket_;
};

void broadcast_state(const torch::nn::Module& module, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  std::vector<at::Tensor> state;
  for (const auto& parameter : module.parameters()) state.push_back(parameter.detach());
  for (const auto& buffer : module.buffers()) state.push_back(buffer.detach());
  constexpr size_t kBufferBytes = size_t{250} << 20;
  if (!state.empty()) c10d::broadcast_coalesced(group, state, kBufferBytes, /*rank=*/0);
}

}  // namespace

struct DdpReducer::State {
  std::shared_ptr<c10d::Reducer> reducer;
  bool sync = true;
};

DdpReducer::DdpReducer(const torch::nn::Module& module, c10::intrusive_ptr<c10d::ProcessGroup> group, const DdpOptions& options)
    : state_(std::make_unique<State>()) {
  std::vector<at::Tensor> parameters;
  std::unordered_map<size_t, std::string> names;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    names[parameters.size()] = item.key();
    parameters.push_back(item.value());
  }
  if (parameters.empty()) throw Error("DistributedDataParallel needs a module with at least one parameter that requires a gradient");

  if (options.skip_alone && group->getSize() == 1) return;
  c10d::verify_params_across_processes(group, parameters, std::nullopt);
  broadcast_state(module, group);

  const std::vector<bool> sparse(parameters.size(), false);
  const auto first = static_cast<size_t>(options.first_bucket_bytes);
  const auto rest = static_cast<size_t>(options.bucket_bytes);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {first, rest}, sparse));
  // Gradients become ready roughly in the reverse order of the parameters.
  std::reverse(buckets.begin(), buckets.end());

  state_->reducer = std::make_shared<c10d::Reducer>(
      std::move(parameters), std::move(buckets), group, sparse, options.bucket_bytes, options.find_unused_parameters,
      options.gradient_as_bucket_view, std::move(names), options.first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>{});
  if (options.static_graph) state_->reducer->set_static_graph();
  if (options.reduction == DdpOptions::Reduction::kSum) {
    state_->reducer->register_comm_hook(std::make_unique<SumHook>(std::move(group), options.on_last_bucket));
  }
}

DdpReducer::~DdpReducer() = default;

void DdpReducer::set_sync(bool sync) { state_->sync = sync; }

bool DdpReducer::is_reducing() const { return state_->reducer != nullptr; }

void DdpReducer::before_forward() {
  if (!state_->sync || !state_->reducer) return;
  if (state_->reducer->should_rebuild_buckets()) state_->reducer->rebuild_buckets();
  state_->reducer->prepare_for_forward();
}

void DdpReducer::after_forward(const std::vector<torch::Tensor>& outputs) {
  if (state_->sync && state_->reducer) state_->reducer->prepare_for_backward(outputs);
}

}  // namespace cxxrun
