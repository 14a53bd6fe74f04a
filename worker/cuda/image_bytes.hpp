// Images as cameras give them, bytes with channels last, to normalized numbers in one pass: (byte / 255 - shift) / divisor + offset, with a
// shift and a divisor for each channel. The arithmetic of doing it step by step, so the same bits. Launcher as in channel_affine.hpp.
#pragma once

#include <cmath>

#include <cuda_runtime_api.h>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

// byte / 255 as the division rounds it, by its own last step.
VLA_HOST_DEVICE inline float share_of_255(uint8_t byte) {
  constexpr float kInverse = 1 / 255.0f;
  const float x = static_cast<float>(byte), near = x * kInverse;
  return std::fma(std::fma(-255.0f, near, x), kInverse, near);
}

struct ImageBytes {
  int64_t pixels = 0, channels = 0;
  const void *shift = nullptr, *divisor = nullptr;  // Real [channels]; null = byte / 255 alone
  double offset = 0;

  // The quotient is float32 for every T, as images are read.
  template <class T>
  VLA_HOST_DEVICE T value(uint8_t byte, int64_t channel) const {
    using R = Real<T>;
    R result = static_cast<R>(share_of_255(byte));
    if (shift != nullptr) result = (result - static_cast<const R*>(shift)[channel]) / static_cast<const R*>(divisor)[channel] + static_cast<R>(offset);
    return static_cast<T>(result);
  }
};

// bytes: [pixels, channels]; output the same of `type`.
cudaError_t image_bytes_cuda(const ImageBytes& of, const uint8_t* bytes, void* output, CudaElement type, cudaStream_t stream);

}  // namespace vla
