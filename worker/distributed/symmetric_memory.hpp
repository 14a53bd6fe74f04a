// Memory that NCCL's kernels read and write directly on all GPUs of a node ("symmetric windows"): what lies there is summed by fewer of a
// GPU's cores and in less time than through NCCL's buffers. Where NCCL has no such memory (CPU, several nodes, GPUs without an NVSwitch,
// NCCL_WIN_ENABLE=0), or ranks allocate differently, it is ordinary memory, summed in the ordinary way. One thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/cuda/MemPool.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace c10d {
class ProcessGroupNCCL;
}

namespace cxxrun {

class SymmetricMemory {
 public:
  explicit SymmetricMemory(c10d::ProcessGroup& group);
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;
  ~SymmetricMemory();  // while `group` is connected; what lies there stays readable while tensors refer to it

  // Once, on all ranks: what `make` allocates on this thread lies there.
  void allocate(const std::function<void()>& make);

 private:
  struct Segment {
    void* begin;
    size_t bytes;
  };
  using Segments = std::vector<Segment>;

  bool is_alike(const Segments& segments) const;  // on all ranks
  void open(const Segments& segments);

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;  // null: there is none
  std::unique_ptr<at::cuda::MemPool> pool_;
  std::vector<struct ncclWindow_vidmem*> windows_;
};

}  // namespace cxxrun
