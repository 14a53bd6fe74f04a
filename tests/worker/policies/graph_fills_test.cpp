// Memsets of a captured graph, run as kernels.
#include "worker/cuda/graph_fills.hpp"

#include <algorithm>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/support.hpp"

namespace vla {
namespace {

int64_t memsets_of(cudaGraph_t graph) {
  size_t count = 0;
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  return std::ranges::count_if(nodes, [](cudaGraphNode_t node) {
    cudaGraphNodeType type{};
    C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    return type == cudaGraphNodeTypeMemset;
  });
}

TEST(GraphFills, AreTheMemsetsBetweenTheSameKernels) {
  if (test_device().is_cpu()) GTEST_SKIP() << "no GPU";
  const auto bytes = at::TensorOptions(at::kByte).device(test_device());
  const auto stream = at::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  // At odd places, of odd sizes, larger than all threads of a launch; each needs the kernel before it and is read by the one after it.
  const std::vector<std::pair<int64_t, int64_t>> places{{0, 1}, {3, 61}, {64, 4096}, {5000, 3}, {8192, 9'000'000}};
  const at::Tensor memory = torch::zeros({10'000'000}, bytes), after = torch::zeros({static_cast<int64_t>(places.size()), 10'000'000}, bytes);
  at::cuda::CUDAGraph graph(/*keep_graph=*/true);
  graph.capture_begin();
  for (size_t i = 0; i < places.size(); ++i) {
    memory.add_(1);
    const auto [first, count] = places[i];
    C10_CUDA_CHECK(cudaMemsetAsync(memory.slice(0, first).mutable_data_ptr(), static_cast<int>(200 + i), static_cast<size_t>(count), stream));
    after[static_cast<int64_t>(i)].copy_(memory);
  }
  graph.capture_end();
  ASSERT_EQ(memsets_of(graph.raw_cuda_graph()), places.size());
  C10_CUDA_CHECK(replace_memsets(graph.raw_cuda_graph()));
  EXPECT_EQ(memsets_of(graph.raw_cuda_graph()), 0);
  graph.instantiate();
  at::Tensor expected = torch::zeros({10'000'000}, at::kByte);
  for (int repeat = 0; repeat < 2; ++repeat) {
    graph.replay();
    for (size_t i = 0; i < places.size(); ++i) {
      expected.add_(1);
      expected.slice(0, places[i].first, places[i].first + places[i].second).fill_(static_cast<int64_t>(200 + i));
      EXPECT_TRUE(after[static_cast<int64_t>(i)].cpu().equal(expected)) << "fill " << i << ", run " << repeat;
    }
  }
}

}  // namespace
}  // namespace vla
