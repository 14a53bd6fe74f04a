// y = relu(x * scale + shift + residual) of tensors [pixels, channels] with a scale and a shift for each channel: a batch norm whose
// statistics are known, what is added to it and the activation, in one pass. Backward needs y alone.
// Launchers are asynchronous on `stream` and return the launch's status; the current device must own the pointers.
#pragma once

#include <cuda_runtime_api.h>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

template <class R>
VLA_HOST_DEVICE inline R relu_of(R x) {
  return x < 0 ? R{0} : x;  // NaN stays
}

template <class R>
VLA_HOST_DEVICE inline R relu_gradient(R y, R gradient) {
  return y <= 0 ? R{0} : gradient;
}

struct ChannelAffine {
  int64_t pixels = 0, channels = 0;
  bool relu = false;
  const void* scale = nullptr;  // Real [channels]
  const void* shift = nullptr;

  // N channels from `channel` on of pixels `first`, `first + step` …; `residual` may be null.
  template <int N, class T>
  VLA_HOST_DEVICE void forward(const T* x, const T* residual, T* y, int64_t channel, int64_t first, int64_t step) const {
    using R = Real<T>;
    const auto a = load<N>(static_cast<const R*>(scale) + channel);
    const auto b = load<N>(static_cast<const R*>(shift) + channel);
    for (int64_t pixel = first; pixel < pixels; pixel += step) {
      const int64_t at = pixel * channels + channel;
      auto values = load<N>(x + at);
      Pack<T, N> added = {};
      if (residual != nullptr) added = load<N>(residual + at);
      for (int i = 0; i < N; ++i) {
        R value = static_cast<R>(values.at[i]) * a.at[i] + b.at[i];
        if (residual != nullptr) value += static_cast<R>(added.at[i]);
        values.at[i] = static_cast<T>(relu ? relu_of(value) : value);
      }
      store<N>(y + at, values);
    }
  }

  // `d_residual` may be null; y is read with relu only.
  template <int N, class T>
  VLA_HOST_DEVICE void backward(const T* gradient, const T* y, T* dx, T* d_residual, int64_t channel, int64_t first, int64_t step) const {
    using R = Real<T>;
    const auto a = load<N>(static_cast<const R*>(scale) + channel);
    for (int64_t pixel = first; pixel < pixels; pixel += step) {
      const int64_t at = pixel * channels + channel;
      auto values = load<N>(gradient + at);
      Pack<T, N> outputs = {}, scaled;
      if (relu) outputs = load<N>(y + at);
      for (int i = 0; i < N; ++i) {
        if (relu) values.at[i] = static_cast<T>(relu_gradient(static_cast<R>(outputs.at[i]), static_cast<R>(values.at[i])));
        scaled.at[i] = static_cast<T>(static_cast<R>(values.at[i]) * a.at[i]);
      }
      store<N>(dx + at, scaled);
      if (d_residual != nullptr) store<N>(d_residual + at, values);
    }
  }
};

cudaError_t channel_affine_forward_cuda(const ChannelAffine& affine, const void* x, const void* residual, void* y, CudaElement type,
                                        cudaStream_t stream);
cudaError_t channel_affine_backward_cuda(const ChannelAffine& affine, const void* gradient, const void* y, void* dx, void* d_residual,
                                         CudaElement type, cudaStream_t stream);

}  // namespace vla
