#include "worker/checkpoint/host_snapshot.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/Parallel.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/torch.h>

namespace vla {
namespace {

// On its way over the bus a piece holds up training's own small copies for 0.2 ms.
constexpr int64_t kStagingBytes = 8 << 20;
constexpr int64_t kAlignment = 256;
// Less is not worth another thread.
constexpr int64_t kChunksPerThread = 16;

std::byte* bytes_of(const at::Tensor& memory) { return static_cast<std::byte*>(memory.mutable_data_ptr()); }

void make_room(at::Tensor& memory, int64_t bytes, at::Device device) {
  if (memory.defined() && memory.numel() >= bytes && memory.device() == device) return;
  memory.reset();  // first: the two need not fit together
  memory = torch::empty({bytes}, torch::dtype(torch::kByte).device(device));
}

void copy_rows_cpu(const CopyRows& rows) {
  at::parallel_for(0, rows.chunks(), kChunksPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const CopyRow chunk = rows.chunk(static_cast<uint32_t>(i));
      std::memcpy(chunk.to, chunk.from, static_cast<size_t>(chunk.bytes));
    }
  });
}

// Collects copies and has as many as possible done by one call of `copy`.
template <class Copy>
class CopyQueue {
 public:
  explicit CopyQueue(const Copy& copy) : copy_(copy) {}
  void add(const CopyRow& row) {
    if (rows_.add(row)) return;
    flush();
    rows_.add(row);
  }
  void flush() {
    copy_(rows_);
    rows_.count = 0;
  }

 private:
  const Copy& copy_;
  CopyRows rows_;
};

}  // namespace

HostSnapshot::HostSnapshot(at::Device device, int64_t most_on_gpu) : most_on_gpu_(most_on_gpu) {
  if (device.is_cuda()) prepare(device);
}

void HostSnapshot::prepare(at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  staging_ = torch::empty({kStagingBytes}, torch::dtype(torch::kByte).pinned_memory(true));
  C10_CUDA_CHECK(load_copy_rows_cuda());
}

std::vector<HostSnapshot::Place> HostSnapshot::lay_out(CheckpointFiles& files) {
  std::vector<Place> places;
  bytes_ = gpu_bytes_ = 0;
  for (const bool on_gpu : {true, false}) {
    for (auto& [path, tensors] : files.tensors) {
      for (auto& [name, tensor] : tensors) {
        if (tensor.is_cuda() != on_gpu) continue;
        if (!tensor.is_non_overlapping_and_dense()) tensor = tensor.contiguous();
        places.push_back({&tensor, bytes_});
        bytes_ += (static_cast<int64_t>(tensor.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
      }
    }
    if (on_gpu) gpu_bytes_ = bytes_;
  }
  return places;
}

// Half of what is free stays free.
bool HostSnapshot::has_room_on_gpu() const {
  if (gpu_bytes_ > most_on_gpu_) return false;
  if (on_gpu_.defined() && on_gpu_.numel() >= gpu_bytes_) return true;
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess && static_cast<int64_t>(free / 2) > gpu_bytes_;
}

CopyRow HostSnapshot::row_of(const Place& place, const at::Tensor& memory) {
  const at::Tensor& tensor = *place.tensor;
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), bytes_of(memory) + place.offset, static_cast<int64_t>(tensor.nbytes())};
}

void HostSnapshot::take(CheckpointFiles& files) {
  const torch::NoGradGuard no_grad;
  taken_.reset();
  const std::vector<Place> places = lay_out(files);
  make_room(on_host_, bytes_, torch::kCPU);
  if (gpu_bytes_ > 0) take_from_gpu(places);
  CopyQueue queue(copy_rows_cpu);
  for (const Place& place : places) {
    if (!place.tensor->is_cuda()) queue.add(row_of(place, on_host_));
  }
  queue.flush();
  for (const auto& [tensor, offset] : places) {
    *tensor = torch::from_blob(bytes_of(on_host_) + offset, tensor->sizes(), tensor->strides(), torch::dtype(tensor->scalar_type()));
  }
}

void HostSnapshot::take_from_gpu(const std::vector<Place>& places) {
  const at::Device device = places.front().tensor->device();
  if (!staging_.defined()) prepare(device);
  const c10::cuda::CUDAGuard guard(device);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  const bool in_two_steps = has_room_on_gpu();
  if (in_two_steps) make_room(on_gpu_, gpu_bytes_, device);
  const auto copy = [&](const CopyRows& rows) { C10_CUDA_CHECK(copy_rows_cuda(rows, stream.stream())); };
  CopyQueue queue(copy);
  for (const Place& place : places) {
    if (!place.tensor->is_cuda()) break;  // the others come behind
    if (in_two_steps) {
      queue.add(row_of(place, on_gpu_));
    } else {
      fetch(place.tensor->const_data_ptr(), place.offset, static_cast<int64_t>(place.tensor->nbytes()), stream);
    }
  }
  queue.flush();
  if (!in_two_steps) return;
  taken_.emplace(device.type());
  taken_->record(stream);
}

void HostSnapshot::fetch(const void* from, int64_t offset, int64_t bytes, const c10::cuda::CUDAStream& stream) {
  for (int64_t at = 0; at < bytes; at += kStagingBytes) {
    const auto size = static_cast<size_t>(std::min(kStagingBytes, bytes - at));
    C10_CUDA_CHECK(cudaMemcpyAsync(bytes_of(staging_), static_cast<const std::byte*>(from) + at, size, cudaMemcpyDeviceToHost, stream.stream()));
    stream.synchronize();
    std::memcpy(bytes_of(on_host_) + offset + at, bytes_of(staging_), size);
  }
}

void HostSnapshot::bring_home() {
  if (!taken_) return;
  const c10::cuda::CUDAGuard guard(taken_->device());
  const c10::cuda::CUDAStream beside = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, taken_->device_index());
  taken_->block(beside);
  fetch(on_gpu_.const_data_ptr(), 0, gpu_bytes_, beside);
  taken_.reset();
}

}  // namespace vla
