// This rank's membership in the job: the c10d process group made from the launcher's environment. Gloo serves CPU tensors
// and NCCL, when the device is a GPU, CUDA tensors. A world of one needs no launcher and no network. Not thread-safe: collectives
// are called from the training thread, in the same order on every rank. Failures throw c10::Error or cxxrun::Error.
#pragma once

#include <chrono>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "common/worker_env.hpp"

namespace cxxrun {

struct ProcessGroupOptions {
  std::string backend = "auto";  // auto | gloo | nccl; auto is nccl on a GPU, else gloo
  // A collective that takes longer fails. Long enough for the slowest rank's checkpoint or first batch.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// The device of this rank: "cpu", "cuda" (index = local rank) or "auto" (a GPU where there is one). UsageError when a GPU is asked for
// and local_rank has none, with both numbers.
at::Device choose_device(std::string_view device, const WorkerEnv& env);
std::string device_name(at::Device device);  // "cuda:0 NVIDIA H100 80GB HBM3", "cpu"
std::string pci_bus_id(at::Device device);  // of a GPU: "0000:3b:00.0"

class World {
 public:
  // Joins the job described by `env`; RendezvousError if that fails. For a GPU, makes `device` the current one. NCCL connects on a
  // thread beside what follows; the first who needs the connections waits for them.
  World(const WorkerEnv& env, at::Device device, const ProcessGroupOptions& options = {});
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();  // leaves the job; while an exception is on its way, without waiting for the other ranks

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  int64_t local_size() const { return local_size_; }  // ranks on this node
  bool is_main() const { return rank_ == 0; }
  at::Device device() const { return device_; }
  const std::string& backend() const { return backend_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const;  // connected

  // In place; on return the result is ordered before later work on the current stream (CPU: finished).
  void all_reduce_sum(at::Tensor tensor) const;
  // The same, with NCCL over connections of its own, made by the first call: it does not queue behind what group() still has to do, such as
  // summing gradients.
  void all_reduce_sum_apart(at::Tensor tensor) const;
  void broadcast(std::vector<at::Tensor> tensors, int root = 0) const;
  std::string broadcast(std::string text, int root = 0) const;
  std::vector<std::string> gather(const std::string& text) const;  // every rank's, by rank; at most 255 bytes of each
  void barrier() const;

 private:
  void join(const WorkerEnv& env);
  c10::intrusive_ptr<c10d::Backend> make_nccl(const char* name) const;
  const c10::intrusive_ptr<c10d::ProcessGroup>& group_for(const at::Tensor& tensor) const { return tensor.is_cuda() ? group() : group_; }

  int64_t rank_, size_, local_size_;
  at::Device device_;
  std::string backend_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  mutable c10::intrusive_ptr<c10d::Backend> apart_;  // of all_reduce_sum_apart()
  mutable std::future<void> nccl_connection_;  // valid until somebody has waited for it
};

}  // namespace cxxrun
