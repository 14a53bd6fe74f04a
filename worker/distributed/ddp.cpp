#include "worker/distributed/ddp.hpp"

#include <algorithm>
#include <deque>

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "common/error.hpp"
#include "worker/distributed/bucket_shares.hpp"
#include "worker/distributed/gradient_places.hpp"
#include "worker/distributed/symmetric_memory.hpp"

namespace cxxrun {
namespace {

// c10d's Reducer divides by the number of ranks; with a hook it takes what the hook returns.
class GradientHook : public c10d::CommHookInterface {
 public:
  GradientHook(c10::intrusive_ptr<c10d::ProcessGroup> group, const DdpOptions& options, std::shared_ptr<GradientPlaces> places,
               std::shared_ptr<BucketShares> shares)
      : group_(std::move(group)), options_(options), places_(std::move(places)), shares_(std::move(shares)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    places_->fill(bucket);
    if (options_.on_last_bucket && bucket.isLast()) options_.on_last_bucket();
    at::Tensor& buffer = bucket.getBufferRef();
    if (options_.reduction == DdpOptions::Reduction::kMean) buffer.div_(group_->getSize());  // before it is rounded, and cannot overflow
    if (bucket.getIndex() == 0) buffers_.clear();  // of a backward that failed
    buffers_.push_back(buffer);
    if (shares_ && shares_->is_open()) return shares_->reduce(bucket)->getFuture();
    std::vector<at::Tensor> sent{buffer.to(options_.communication_dtype.value_or(buffer.scalar_type()))};
    return group_->allreduce(sent)->getFuture();
  }

  // The Reducer asks for the buckets' results in the order in which it sent them, each when the stream of backward()'s caller has waited for
  // it: there a result turns back into gradients while later buckets travel. A callback of the future would use a stream of the pool, which
  // another thread may be using, and a CUDA graph in the making would take in what that thread does.
  at::Tensor parseHookResult(const c10::IValue& result) override {
    const at::Tensor buffer = buffers_.front();
    buffers_.pop_front();
    if (options_.communication_dtype.value_or(buffer.scalar_type()) != buffer.scalar_type()) buffer.copy_(c10d::detail::parseCppCommHookResult(result));
    return buffer;
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  DdpOptions options_;
  std::shared_ptr<GradientPlaces> places_;
  std::shared_ptr<BucketShares> shares_;
  std::deque<at::Tensor> buffers_;  // that are on their way
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
  std::optional<SymmetricMemory> buckets;  // if gradients live there
  std::shared_ptr<BucketShares> shares;  // if the optimizer's work is shared
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<GradientPlaces> places = std::make_shared<GradientPlaces>();
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
  TORCH_CHECK(at::isFloatingType(options.communication_dtype.value_or(at::kFloat)), "communication_dtype must be a floating-point type");
  if (parameters.empty()) throw Error("DistributedDataParallel needs a module with at least one parameter that requires a gradient");

  if (options.skip_alone && group->getSize() == 1) return;
  c10d::verify_params_across_processes(group, parameters, std::nullopt);
  // Also of weights that every rank read itself, whose files may differ: it takes little beside reading them.
  broadcast_state(module, group);

  const std::vector<bool> sparse(parameters.size(), false);
  const auto first = static_cast<size_t>(options.first_bucket_bytes);
  const auto rest = static_cast<size_t>(options.bucket_bytes);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {first, rest}, sparse));
  // Gradients become ready roughly in the reverse order of the parameters.
  std::reverse(buckets.begin(), buckets.end());

  state_->reducer = std::make_shared<c10d::Reducer>(
      parameters, std::move(buckets), group, sparse, options.bucket_bytes, options.find_unused_parameters,
      options.gradient_as_bucket_view, std::move(names), options.first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>{});
  if (options.static_graph) state_->reducer->set_static_graph();
  if (options.gradient_as_bucket_view) state_->buckets.emplace(*group);
  if (options.shares_updates) {
    TORCH_CHECK(options.gradient_as_bucket_view && !options.find_unused_parameters && !options.communication_dtype,
                "shares_updates needs gradient_as_bucket_view, and no find_unused_parameters or communication_dtype");
    state_->shares = std::make_shared<BucketShares>(group);
  }
  if (options.reduction == DdpOptions::Reduction::kSum || options.communication_dtype || options.shares_updates) {
    state_->reducer->register_comm_hook(std::make_unique<GradientHook>(std::move(group), options, state_->places, state_->shares));
    // Last: a hook that is left on a parameter would keep all of them.
    if (options.gradient_as_bucket_view) state_->places->watch(parameters);
  }
}

DdpReducer::~DdpReducer() { state_->places->leave(); }

void DdpReducer::set_sync(bool sync) { state_->sync = sync; }

bool DdpReducer::is_reducing() const { return state_->reducer != nullptr; }

void DdpReducer::before_forward() {
  if (!state_->sync || !state_->reducer) return;
  if (state_->reducer->should_rebuild_buckets()) {
    bool is_rebuilt = false;  // not yet before the first backward
    const auto rebuild = [&] { is_rebuilt = state_->reducer->rebuild_buckets(); };
    state_->buckets ? state_->buckets->allocate(rebuild) : rebuild();
    state_->places->forget();
    if (is_rebuilt && state_->shares) state_->shares->open();
  }
  state_->reducer->prepare_for_forward();
}

void DdpReducer::after_forward(const std::vector<torch::Tensor>& outputs) {
  const bool reduces = state_->sync && state_->reducer;
  state_->places->begin_backward(reduces);
  if (reduces) state_->reducer->prepare_for_backward(outputs);
}

BucketShares* DdpReducer::begin_sharing() {
  if (!state_->shares || !state_->shares->is_open() || state_->shares->is_placed()) return nullptr;
  state_->shares->place_parameters();
  state_->places->forget();
  return state_->shares.get();
}

at::Tensor DdpReducer::take_gradient_place(const at::Tensor& weight) { return state_->places->take(weight); }

}  // namespace cxxrun
