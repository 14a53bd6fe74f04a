// Copies of tensors on the host that later training steps do not touch. Those of a GPU are first copied on the GPU, if it has room for
// them twice, which holds training up as long as its memory takes; then beside training to the host. Without the room training waits for
// them to cross the bus. The memory on both sides is one piece each, kept for the next snapshot.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>

#include "worker/checkpoint/checkpoint_files.hpp"
#include "worker/cuda/copy_rows.hpp"

namespace vla {

class HostSnapshot {
 public:
  // A GPU's page-locked memory is made here: that stops the device. At most `most_on_gpu` bytes are copied on the GPU.
  explicit HostSnapshot(at::Device device = at::kCPU, int64_t most_on_gpu = std::numeric_limits<int64_t>::max());

  // Replaces every tensor of `files` by its place on the host, valid until the next take(); copies are queued on the current stream. The
  // tensors of the snapshot before must be out of use.
  void take(CheckpointFiles& files);
  // Brings the copies of the last take() home and waits for them; on any thread. Nobody may read the tensors before.
  void bring_home();

 private:
  struct Place {
    at::Tensor* tensor;
    int64_t offset;  // in both memories
  };

  void prepare(at::Device device);
  // Of every tensor, a GPU's first, then the others. Those that are not dense are made so.
  std::vector<Place> lay_out(CheckpointFiles& files);
  bool has_room_on_gpu() const;
  void take_from_gpu(const std::vector<Place>& places);
  static CopyRow row_of(const Place& place, const at::Tensor& memory);
  // Copies from a GPU to the host's memory, waiting for every piece.
  void fetch(const void* from, int64_t offset, int64_t bytes, const c10::cuda::CUDAStream& stream);

  int64_t most_on_gpu_;
  at::Tensor staging_;  // page-locked, small: as much as a checkpoint would take the driver half a second
  at::Tensor on_gpu_, on_host_;  // bytes
  int64_t gpu_bytes_ = 0, bytes_ = 0;  // of the last take()
  std::optional<c10::Event> taken_;
};

}  // namespace vla
