#include "worker/step_graph.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <fmt/ranges.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/cuda/graph_fills.hpp"

namespace vla {
namespace {

// DDP settles its buckets in the second step; cuDNN tries its algorithms in the first.
constexpr int64_t kWarmUpSteps = 11;

// A batch's tensors in a fixed order.
std::vector<torch::Tensor*> tensors_of(Batch& batch, torch::Tensor& counts) {
  std::vector<torch::Tensor*> tensors{&counts, &batch.weight, &batch.position};
  for (auto& [key, field] : batch.fields) tensors.push_back(&field);
  return tensors;
}

std::string signature(int kind, const Batch& batch) {
  std::string text = fmt::format("{} [{}]", kind, batch.rows());
  for (const auto& [key, field] : batch.fields) text += fmt::format(" {} [{}] [{}] {}", key, fmt::join(field.sizes(), ","), fmt::join(field.strides(), ","), c10::toString(field.scalar_type()));
  return text;
}

}  // namespace

struct StepGraph::Captured {
  Batch batch;  // what the graph reads
  torch::Tensor counts;
  at::cuda::CUDAGraph graph{/*keep_graph=*/true};  // kept to be counted
};

// Graphs run one after another, so all can use the same memory.
struct StepGraph::Pool {
  c10::cuda::MempoolId_t id = at::cuda::graph_pool_handle();
};

StepGraph::StepGraph(std::string reason, bool required) : reason_(std::move(reason)), required_(required) {
  if (required_ && !reason_.empty()) throw cxxrun::UsageError("speed.graph = on, but {}", reason_);
}

StepGraph::~StepGraph() = default;

void StepGraph::run(int kind, const Batch& batch, const torch::Tensor& counts, const Work& work) {
  replayed_ = false;
  if (!reason_.empty() || steps_ < kWarmUpSteps) return work(batch, counts);
  const std::string key = signature(kind, batch);
  auto found = captured_.find(key);
  if (found == captured_.end()) {
    auto captured = capture(batch, counts, work);
    if (!captured) return work(batch, counts);
    found = captured_.emplace(key, std::move(captured)).first;
  }
  Captured& graph = *found->second;
  Batch source = batch;
  torch::Tensor source_counts = counts;
  const auto from = tensors_of(source, source_counts), to = tensors_of(graph.batch, graph.counts);
  for (size_t i = 0; i < to.size(); ++i) to[i]->copy_(*from[i], /*non_blocking=*/true);
  graph.graph.replay();
  replayed_ = true;
}

std::unique_ptr<StepGraph::Captured> StepGraph::capture(const Batch& batch, const torch::Tensor& counts, const Work& work) {
  if (!pool_) pool_ = std::make_unique<Pool>();
  // What the warm-up left in the allocator's cache would stay beside the graph's own memory.
  c10::cuda::CUDACachingAllocator::emptyCache();
  auto captured = std::make_unique<Captured>();
  captured->batch = batch;
  captured->counts = counts;
  for (torch::Tensor* tensor : tensors_of(captured->batch, captured->counts)) *tensor = tensor->clone();
  captured->graph.capture_begin(pool_->id, cudaStreamCaptureModeThreadLocal);
  std::string error;
  try {
    work(captured->batch, captured->counts);
  } catch (const std::exception& failed) {
    error = failed.what();
  }
  try {
    captured->graph.capture_end();
  } catch (const std::exception& failed) {
    if (error.empty()) error = failed.what();
  }
  if (error.empty()) {
    C10_CUDA_CHECK(replace_memsets(captured->graph.raw_cuda_graph()));
    size_t nodes = 0;
    C10_CUDA_CHECK(cudaGraphGetNodes(captured->graph.raw_cuda_graph(), nullptr, &nodes));
    captured->graph.instantiate();
    nodes_ += static_cast<int64_t>(nodes);
    return captured;
  }
  reason_ = fmt::format("the step cannot be captured as a CUDA graph: {}", error.substr(0, error.find('\n')));
  captured_.clear();
  if (required_) throw cxxrun::Error("speed.graph = on, but {}", reason_);
  cxxrun::log_warning("{}; its kernels are launched one by one from here on (speed.graph=off is the same from the start)", reason_);
  return nullptr;
}

}  // namespace vla
