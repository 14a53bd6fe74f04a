// Many pieces of memory copied in few launches: a checkpoint is a thousand tensors, and as many copies would take longer than their bytes.
// Pieces are cut into chunks, one block's work, so that large and small ones are done side by side.
// Launchers are asynchronous on `stream` and return the launch's status; the current device must own the pointers.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/policies/nn/counter_fill.hpp"

namespace vla {

struct CopyRow {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t bytes = 0;
};

// As many as fit a kernel's parameters.
struct CopyRows {
  static constexpr int kMost = 128;
  static constexpr int64_t kChunk = 64 << 10;  // bytes

  CopyRow rows[kMost];
  uint32_t end[kMost];  // chunks of a row and of those before it
  int count = 0;

  // False: there is no room for it.
  bool add(const CopyRow& row) {
    if (count >= kMost) return false;
    end[count] = chunks() + static_cast<uint32_t>((row.bytes + kChunk - 1) / kChunk);
    rows[count++] = row;
    return true;
  }

  VLA_HOST_DEVICE uint32_t chunks() const { return count == 0 ? 0 : end[count - 1]; }

  // What is to be copied for a chunk: of the first row that ends behind it.
  VLA_HOST_DEVICE CopyRow chunk(uint32_t index) const {
    int first = 0, last = count - 1;
    while (first < last) {
      const int middle = (first + last) / 2;
      if (end[middle] > index) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    const CopyRow& row = rows[first];
    const int64_t at = int64_t{index - (first == 0 ? 0 : end[first - 1])} * kChunk;
    return {row.from + at, row.to + at, row.bytes - at < kChunk ? row.bytes - at : kChunk};
  }
};

cudaError_t copy_rows_cuda(const CopyRows& rows, cudaStream_t stream);
// Loads the kernel, which otherwise happens at its first launch and may wait for the device.
cudaError_t load_copy_rows_cuda();

}  // namespace vla
