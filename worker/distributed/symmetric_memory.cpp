#include "worker/distributed/symmetric_memory.hpp"

#include <dlfcn.h>

#include <exception>
#include <thread>

#include <ATen/ops/tensor.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace cxxrun {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_of(c10d::ProcessGroup& group) {
  if (group.getSize() == 1 || group.getBackendType() != c10d::ProcessGroup::BackendType::NCCL) return {};
  auto nccl = c10::dynamic_intrusive_pointer_cast<c10d::ProcessGroupNCCL>(group.getBackend(at::kCUDA));
  return nccl && nccl->supportsTensorAlloc(c10::cuda::current_device()) ? nccl : nullptr;
}

// Of the NCCL that LibTorch has loaded, which may be older than windows: then null.
template <class Function>
Function* nccl_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

ncclComm_t communicator(c10d::ProcessGroupNCCL& nccl) { return reinterpret_cast<ncclComm_t>(nccl.getCommPtr()); }

}  // namespace

SymmetricMemory::SymmetricMemory(c10d::ProcessGroup& group) : nccl_(nccl_of(group)) {}

SymmetricMemory::~SymmetricMemory() {
  if (std::uncaught_exceptions() > 0) {
    // A kernel may be waiting there for a rank that has failed.
    pool_.release();  // NOLINT(bugprone-unused-return-value)
    return;
  }
  if (windows_.empty()) return;
  c10::cuda::device_synchronize();  // sums may still be on their way
  static const auto close = nccl_function<decltype(ncclCommWindowDeregister)>("ncclCommWindowDeregister");
  for (ncclWindow_t window : windows_) close(communicator(*nccl_), window);
}

void SymmetricMemory::allocate(const std::function<void()>& make) {
  static const auto take = nccl_function<decltype(ncclMemAlloc)>("ncclMemAlloc");
  static const auto give_back = nccl_function<decltype(ncclMemFree)>("ncclMemFree");
  if (!nccl_ || take == nullptr || give_back == nullptr) return make();  // the same everywhere: ranks have one NCCL and one kind of GPU
  // In the order of allocation, which ranks share; they need not share the order of addresses.
  const auto segments = std::make_shared<Segments>();
  pool_ = std::make_unique<at::cuda::MemPool>(torch::cuda::CUDAPluggableAllocator::createCustomAllocator(
      [segments](size_t bytes, int, cudaStream_t) {
        void* begin = nullptr;
        if (take(&begin, bytes) != ncclSuccess) return static_cast<void*>(nullptr);
        segments->push_back({begin, bytes});
        return begin;
      },
      [](void* begin, size_t, int, cudaStream_t) { give_back(begin); }));
  const auto is_here = [thread = std::this_thread::get_id()](cudaStream_t) { return std::this_thread::get_id() == thread; };
  caching::beginAllocateToPool(pool_->device(), pool_->id(), is_here);
  try {
    make();
  } catch (...) {
    caching::endAllocateToPool(pool_->device(), pool_->id());
    throw;
  }
  caching::endAllocateToPool(pool_->device(), pool_->id());
  if (is_alike(*segments)) open(*segments);
}

bool SymmetricMemory::is_alike(const Segments& segments) const {
  uint64_t hash = segments.size();
  for (const Segment& segment : segments) hash = hash * 1000003 + segment.bytes;
  const auto value = static_cast<int64_t>(hash >> 1);
  std::vector<at::Tensor> most{at::tensor({value, -value}).to(at::Device(at::kCUDA, pool_->device()))};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  nccl_->allreduce(most, options)->wait();
  const at::Tensor found = most[0].cpu();
  return found[0].item<int64_t>() == -found[1].item<int64_t>();
}

void SymmetricMemory::open(const Segments& segments) {
  static const auto open_window = nccl_function<decltype(ncclCommWindowRegister)>("ncclCommWindowRegister");
  if (open_window == nullptr) return;
  // Here rather than by registerMemPool(), whose windows make an abort of the group fail.
  for (const Segment& segment : segments) {
    ncclWindow_t window = nullptr;
    const ncclResult_t result = open_window(communicator(*nccl_), segment.begin, segment.bytes, &window, NCCL_WIN_COLL_SYMMETRIC);
    TORCH_CHECK(result == ncclSuccess, "NCCL cannot open the memory of gradients to all GPUs (NCCL_WIN_ENABLE=0 does without): ",
                c10d::ncclGetErrorWithVersion(result));
    if (window != nullptr) windows_.push_back(window);
  }
}

}  // namespace cxxrun
