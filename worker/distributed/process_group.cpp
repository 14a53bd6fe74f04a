#include "worker/distributed/process_group.hpp"

#include <exception>

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "common/error.hpp"

namespace cxxrun {
namespace {

c10::intrusive_ptr<c10d::Store> open_store(const WorkerEnv& env, std::chrono::milliseconds timeout) {
  if (env.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(env.master_port);
  options.isServer = env.rank == 0 && !env.use_agent_store;
  options.waitWorkers = false;
  options.timeout = timeout;
  auto store = c10::make_intrusive<c10d::TCPStore>(env.master_addr, options);
  // torchrun keeps one store for all attempts: keys of a failed attempt must not meet ours.
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("attempt_{}", env.restart_count), std::move(store));
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const WorkerEnv& env,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const auto interface = environment_variable("GLOO_SOCKET_IFNAME");
  const bool one_node = env.local_world_size == env.world_size;
  if (interface) {
    options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface(*interface)};
  } else if (one_node) {
    // The host's own name may not resolve, and ranks of one node need no other address.
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  } else {
    options->devices = {c10d::ProcessGroupGloo::createDefaultDevice()};
  }
  return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), env.rank, env.world_size,
                                                     std::move(options));
}

// On the current stream: as a part of the chain of kernels it costs less than beside it.
void sum_in_place(at::Tensor tensor, auto& through) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  const auto work = through.allreduce(tensors, options);
  if (work) work->wait();  // NCCL's needs none
}

}  // namespace

at::Device choose_device(std::string_view device, const WorkerEnv& env) {
  const int64_t gpus = device == "cpu" ? 0 : c10::cuda::device_count();
  if (device == "cpu" || (device == "auto" && gpus == 0)) return at::kCPU;
  // "cuda:1" names a GPU for a world of one; under a launcher the local rank decides.
  int64_t index = env.local_rank;
  if (device != "auto" && device != "cuda") {
    try {
      const at::Device parsed{std::string(device)};
      if (!parsed.is_cuda()) throw UsageError("device '{}' is not supported (known: auto, cpu, cuda)", device);
      if (!env.launched && parsed.has_index()) index = parsed.index();
    } catch (const c10::Error&) {
      throw UsageError("device '{}' is not known (auto, cpu, cuda or cuda:N)", device);
    }
  }
  if (index >= gpus) {
    throw UsageError("local rank {} of {} wants a GPU of its own, but {} are visible: start at most {} ranks on this node, widen "
                     "CUDA_VISIBLE_DEVICES, or use --device cpu",
                     index, env.local_world_size, gpus, gpus);
  }
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

std::string device_name(at::Device device) {
  if (!device.is_cuda()) return device.str();
  return fmt::format("{} {}", device.str(), at::cuda::getDeviceProperties(device.index())->name);
}

std::string pci_bus_id(at::Device device) {
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
  return fmt::format("{:04x}:{:02x}:{:02x}.0", properties->pciDomainID, properties->pciBusID, properties->pciDeviceID);
}

World::World(const WorkerEnv& env, at::Device device, const ProcessGroupOptions& options)
    : rank_(env.rank),
      size_(env.world_size),
      local_size_(env.launched ? env.local_world_size : 1),
      device_(device),
      backend_(options.backend),
      timeout_(options.timeout) {
  if (backend_ == "auto") backend_ = device.is_cuda() ? "nccl" : "gloo";
  if (backend_ == "nccl" && !device.is_cuda()) throw UsageError("backend nccl needs a GPU; this rank's device is {}", device.str());
  if (device.is_cuda()) c10::cuda::set_device(device.index());
  // How many of a GPU's multiprocessors sum what lies in symmetric_memory.hpp: more are hardly faster, and other kernels lose them.
  setenv("NCCL_SYM_CTAS", "32", /*overwrite=*/0);

  try {
    join(env);
  } catch (const c10::Error& error) {
    throw RendezvousError("rank {} cannot join the {} ranks at {}:{}: {}", rank_, size_, env.master_addr, env.master_port,
                          error.what_without_backtrace());
  }
}

World::~World() {
  try {
    if (nccl_connection_.valid()) nccl_connection_.wait();
    if (std::uncaught_exceptions() > 0) {
      if (apart_) apart_->abort();
      group_->abort();
    } else {
      if (apart_) apart_->shutdown();
      group_->shutdown();
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: leaving the job: {}\n", rank_, error.what());
  }
}

c10::intrusive_ptr<c10d::Backend> World::make_nccl(const char* name) const {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout_;
  options->is_high_priority_stream = true;  // its few blocks need not wait until a kernel of thousands has started
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>(name, group_->getStore()), static_cast<int>(rank_),
                                                     static_cast<int>(size_), std::move(options));
}

void World::join(const WorkerEnv& env) {
  const auto store = open_store(env, timeout_);
  group_ = c10::make_intrusive<c10d::ProcessGroup>(store, static_cast<int>(rank_), static_cast<int>(size_));
  const auto gloo = make_gloo(store, env, timeout_);
  group_->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  if (backend_ == "nccl") {
    const auto nccl = make_nccl("nccl");
    group_->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::NCCL, nccl);
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
    if (size_ > 1) {
      nccl_connection_ = std::async(std::launch::async, [nccl, device = device_] {
        c10::cuda::set_device(device.index());
        nccl->eagerConnectSingleDevice(device);
      });
    }
  } else {
    if (device_.is_cuda()) group_->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::GLOO, gloo);
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  }
}

const c10::intrusive_ptr<c10d::ProcessGroup>& World::group() const {
  if (nccl_connection_.valid()) nccl_connection_.get();
  return group_;
}

void World::all_reduce_sum(at::Tensor tensor) const {
  if (size_ > 1) sum_in_place(tensor, *group_for(tensor));
}

void World::all_reduce_sum_apart(at::Tensor tensor) const {
  if (size_ == 1 || !tensor.is_cuda() || backend_ != "nccl") return all_reduce_sum(std::move(tensor));
  if (!apart_) {
    group();  // one connection after the other
    apart_ = make_nccl("nccl_apart");
    apart_->eagerConnectSingleDevice(device_);
  }
  sum_in_place(std::move(tensor), *apart_);
}

void World::broadcast(std::vector<at::Tensor> tensors, int root) const {
  constexpr size_t kBufferBytes = size_t{250} << 20;
  if (size_ > 1 && !tensors.empty()) c10d::broadcast_coalesced(group_for(tensors.front()), tensors, kBufferBytes, root);
}

std::string World::broadcast(std::string text, int root) const {
  auto size = at::scalar_tensor(static_cast<int64_t>(text.size()), at::kLong);
  broadcast(std::vector{size}, root);
  text.resize(static_cast<size_t>(size.item<int64_t>()));
  if (!text.empty()) broadcast(std::vector{at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::kByte)}, root);
  return text;
}

std::vector<std::string> World::gather(const std::string& text) const {
  constexpr size_t kMost = 255;
  // On the CPU, where both back ends of a world have one.
  auto bytes = at::zeros({size_, int64_t{kMost} + 1}, at::kInt);
  auto* own = bytes[rank_].mutable_data_ptr<int>();
  for (size_t i = 0; i < std::min(text.size(), kMost); ++i) own[i] = static_cast<unsigned char>(text[i]);
  all_reduce_sum(bytes);
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < size_; ++rank) {
    std::string& other = texts.emplace_back();
    for (const int* byte = bytes[rank].const_data_ptr<int>(); *byte != 0; ++byte) other += static_cast<char>(*byte);
  }
  return texts;
}

void World::barrier() const {
  // Through the CPU back end: waiting must not depend on the state of a GPU.
  all_reduce_sum(at::scalar_tensor(0, at::kFloat));
}

}  // namespace cxxrun
