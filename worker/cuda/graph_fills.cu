#include <cstdint>
#include <vector>

#include "worker/cuda/graph_fills.hpp"

namespace vla {
namespace {

constexpr int kThreads = 256;
constexpr size_t kVector = sizeof(uint4);

// The pattern's four bytes, again and again from `to` on.
__global__ void __launch_bounds__(kThreads) fill_kernel(uint8_t* to, size_t bytes, uint32_t pattern) {
  const size_t thread = blockIdx.x * size_t{kThreads} + threadIdx.x, threads = size_t{gridDim.x} * kThreads;
  const size_t vectors = reinterpret_cast<uintptr_t>(to) % kVector == 0 ? bytes / kVector : 0;
  for (size_t i = thread; i < vectors; i += threads) reinterpret_cast<uint4*>(to)[i] = make_uint4(pattern, pattern, pattern, pattern);
  for (size_t i = vectors * kVector + thread; i < bytes; i += threads) to[i] = static_cast<uint8_t>(pattern >> (8 * (i % 4)));
}

uint32_t pattern_of(const cudaMemsetParams& fill) {
  if (fill.elementSize == 1) return (fill.value & 0xff) * 0x01010101u;
  return fill.elementSize == 2 ? (fill.value & 0xffff) * 0x00010001u : fill.value;
}

cudaError_t replace(cudaGraph_t graph, cudaGraphNode_t memset, const cudaMemsetParams& fill) {
  size_t before_count = 0, after_count = 0;
  if (const auto e = cudaGraphNodeGetDependencies(memset, nullptr, nullptr, &before_count)) return e;
  if (const auto e = cudaGraphNodeGetDependentNodes(memset, nullptr, nullptr, &after_count)) return e;
  std::vector<cudaGraphNode_t> before(before_count), after(after_count);
  std::vector<cudaGraphEdgeData> before_edges(before_count), after_edges(after_count);
  if (const auto e = cudaGraphNodeGetDependencies(memset, before.data(), before_edges.data(), &before_count)) return e;
  if (const auto e = cudaGraphNodeGetDependentNodes(memset, after.data(), after_edges.data(), &after_count)) return e;

  auto* to = static_cast<uint8_t*>(fill.dst);
  size_t bytes = fill.width * fill.elementSize;
  uint32_t pattern = pattern_of(fill);
  void* arguments[] = {&to, &bytes, &pattern};
  const size_t blocks = (bytes / kVector + kThreads) / kThreads;
  cudaKernelNodeParams kernel{};
  kernel.func = reinterpret_cast<void*>(fill_kernel);
  kernel.gridDim = dim3(static_cast<unsigned>(blocks < 1024 ? blocks : 1024));
  kernel.blockDim = dim3(kThreads);
  kernel.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  if (const auto e = cudaGraphAddKernelNode(&node, graph, nullptr, 0, &kernel)) return e;
  for (size_t i = 0; i < before_count; ++i) {
    if (const auto e = cudaGraphAddDependencies(graph, &before[i], &node, &before_edges[i], 1)) return e;
  }
  for (size_t i = 0; i < after_count; ++i) {
    if (const auto e = cudaGraphAddDependencies(graph, &node, &after[i], &after_edges[i], 1)) return e;
  }
  return cudaGraphDestroyNode(memset);
}

}  // namespace

cudaError_t replace_memsets(cudaGraph_t graph) {
  size_t count = 0;
  if (const auto e = cudaGraphGetNodes(graph, nullptr, &count)) return e;
  std::vector<cudaGraphNode_t> nodes(count);
  if (const auto e = cudaGraphGetNodes(graph, nodes.data(), &count)) return e;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    if (const auto e = cudaGraphNodeGetType(node, &type)) return e;
    if (type != cudaGraphNodeTypeMemset) continue;
    cudaMemsetParams fill{};
    if (const auto e = cudaGraphMemsetNodeGetParams(node, &fill)) return e;
    if (fill.height != 1) continue;
    if (const auto e = replace(graph, node, fill)) return e;
  }
  return cudaSuccess;
}

}  // namespace vla
