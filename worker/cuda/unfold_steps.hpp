// The windows of a convolution over time laid side by side, [rows, out_steps, kernel, channels] of [rows, steps, channels], and back by
// adding up: what makes such a convolution, its gradients and its transpose plain matrix products. Launchers as in channel_affine.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

struct UnfoldSteps {
  int64_t rows = 0, steps = 0, out_steps = 0, channels = 0;
  int64_t kernel = 1, stride = 1, padding = 0;

  VLA_HOST_DEVICE int64_t windows() const { return rows * out_steps * kernel; }

  // One place of one window.
  template <int N, class T>
  VLA_HOST_DEVICE void unfold(const T* x, T* windows, int64_t place, int64_t channel) const {
    const int64_t step = place / kernel % out_steps * stride + place % kernel - padding, row = place / kernel / out_steps;
    Pack<T, N> values = {};
    if (step >= 0 && step < steps) values = load<N>(x + (row * steps + step) * channels + channel);
    store<N>(windows + place * channels + channel, values);
  }

  // One step of one row: the sum of where it stands in windows.
  template <int N, class T>
  VLA_HOST_DEVICE void fold(const T* windows, T* x, int64_t at, int64_t channel) const {
    const int64_t row = at / steps, step = at % steps;
    Pack<Real<T>, N> sum = {};
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t from = step + padding - k, window = from / stride;
      if (from < 0 || from % stride != 0 || window >= out_steps) continue;
      const auto values = load<N>(windows + ((row * out_steps + window) * kernel + k) * channels + channel);
      for (int i = 0; i < N; ++i) sum.at[i] += static_cast<Real<T>>(values.at[i]);
    }
    Pack<T, N> result;
    for (int i = 0; i < N; ++i) result.at[i] = static_cast<T>(sum.at[i]);
    store<N>(x + at * channels + channel, result);
  }
};

cudaError_t unfold_steps_cuda(const UnfoldSteps& unfold, const void* x, void* windows, CudaElement type, cudaStream_t stream);
cudaError_t fold_steps_cuda(const UnfoldSteps& unfold, const void* windows, void* x, CudaElement type, cudaStream_t stream);

}  // namespace vla
