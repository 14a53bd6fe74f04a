// A batch norm that trains, over [images, pixels, channels]: sums over a rank's counted pixels, the norm's constants from the sums of all
// ranks, and backward, with a relu after it and what is added before that. The affine part is channel_affine.hpp's. Sums are kept relative
// to the first pixel, so that float32 is enough for a thread's part, and added up over blocks and ranks in float64.
// Launchers as in channel_affine.hpp.
#pragma once

#include <cmath>

#include <cuda_runtime_api.h>

#include "worker/cuda/channel_affine.hpp"

namespace vla {

struct BatchNorm {
  int64_t images = 0, pixels_per_image = 0, channels = 0;
  const float* row_weight = nullptr;  // [rows]: of each row's images 1 or 0; null = 1
  int64_t images_per_row = 1;
  bool relu = false;

  VLA_HOST_DEVICE int64_t pixels() const { return images * pixels_per_image; }
  VLA_HOST_DEVICE float image_weight(int64_t image) const {
    return row_weight == nullptr ? 1.0f : row_weight[static_cast<uint32_t>(image) / static_cast<uint32_t>(images_per_row)];
  }
  VLA_HOST_DEVICE float weight(int64_t pixel) const {  // there are fewer than 2^32
    return row_weight == nullptr ? 1.0f : image_weight(static_cast<uint32_t>(pixel) / static_cast<uint32_t>(pixels_per_image));
  }

  // Of N channels from `channel` on, sums over pixels `first`, `first + step` … of x - x[0] and of its square.
  template <int N, class T, class Sum>
  VLA_HOST_DEVICE void moments(const T* x, Pack<Sum, N>& sum, Pack<Sum, N>& squares, int64_t channel, int64_t first, int64_t step) const {
    using R = Real<T>;
    const auto zero = load<N>(x + channel);
    for (int64_t pixel = first; pixel < pixels(); pixel += step) {
      const R counted = weight(pixel);
      const auto values = load<N>(x + pixel * channels + channel);
      for (int i = 0; i < N; ++i) {
        const R value = static_cast<R>(values.at[i]) - static_cast<R>(zero.at[i]);
        sum.at[i] += counted * value;
        squares.at[i] += counted * value * value;
      }
    }
  }

  // The same sums of the gradient and of its product with the normalized x: what beta and gamma get.
  template <int N, class T, class Sum>
  VLA_HOST_DEVICE void gradient_sums(const T* gradient, const T* x, const T* y, const Real<T>* mean, const Real<T>* inverse_std,
                                     Pack<Sum, N>& sum, Pack<Sum, N>& products, int64_t channel, int64_t first, int64_t step) const {
    using R = Real<T>;
    const auto m = load<N>(mean + channel), s = load<N>(inverse_std + channel);
    for (int64_t pixel = first; pixel < pixels(); pixel += step) {
      const int64_t at = pixel * channels + channel;
      const auto values = load<N>(gradient + at), inputs = load<N>(x + at);
      Pack<T, N> outputs = {};
      if (relu) outputs = load<N>(y + at);
      for (int i = 0; i < N; ++i) {
        R value = static_cast<R>(values.at[i]);
        if (relu) value = relu_gradient(static_cast<R>(outputs.at[i]), value);
        sum.at[i] += value;
        products.at[i] += value * (static_cast<R>(inputs.at[i]) - m.at[i]) * s.at[i];
      }
    }
  }

  // `sums`: those of gradient_sums over all ranks, float64 [2, channels]; scale is gamma * inverse_std; `d_residual` may be null.
  template <int N, class T>
  VLA_HOST_DEVICE void backward(const T* gradient, const T* x, const T* y, const Real<T>* mean, const Real<T>* inverse_std,
                                const Real<T>* scale, const double* sums, double count, T* dx, T* d_residual, int64_t channel, int64_t first,
                                int64_t step) const {
    using R = Real<T>;
    const auto m = load<N>(mean + channel), s = load<N>(inverse_std + channel), a = load<N>(scale + channel);
    Pack<R, N> of_beta, of_gamma;
    for (int i = 0; i < N; ++i) {
      of_beta.at[i] = static_cast<R>(sums[channel + i] / count);
      of_gamma.at[i] = static_cast<R>(sums[channels + channel + i] / count);
    }
    for (int64_t pixel = first; pixel < pixels(); pixel += step) {
      const int64_t at = pixel * channels + channel;
      const R counted = weight(pixel);
      auto values = load<N>(gradient + at);
      const auto inputs = load<N>(x + at);
      Pack<T, N> outputs = {}, result;
      if (relu) outputs = load<N>(y + at);
      for (int i = 0; i < N; ++i) {
        R value = static_cast<R>(values.at[i]);
        if (relu) value = relu_gradient(static_cast<R>(outputs.at[i]), value);
        values.at[i] = static_cast<T>(value);
        const R normalized = (static_cast<R>(inputs.at[i]) - m.at[i]) * s.at[i];
        result.at[i] = static_cast<T>(a.at[i] * (value - counted * (of_beta.at[i] + normalized * of_gamma.at[i])));
      }
      store<N>(dx + at, result);
      if (d_residual != nullptr) store<N>(d_residual + at, values);
    }
  }

  // Sums relative to zero, which can be added up over ranks: float64 [sum, squares] by channel, and the count.
  template <class T>
  VLA_HOST_DEVICE void finish_moments(const T* x, int64_t channel, double sum, double squares, double count, double* sums) const {
    const double zero = static_cast<Real<T>>(x[channel]);
    sums[channel] = sum + zero * count;
    sums[channels + channel] = squares + zero * (2 * sum + zero * count);
    if (channel == 0) sums[2 * channels] = count;
  }
};

// The constants of a step from the sums of all ranks, and the running statistics, which move. P: the parameters' type.
struct BatchNormConstants {
  int64_t channels = 0;
  double eps = 0, momentum = 0;
  const double* sums = nullptr;  // [2 * channels + 1]
  const void *gamma = nullptr, *beta = nullptr;  // P [channels]
  void *running_mean = nullptr, *running_var = nullptr;  // P [channels]
  int64_t* batches = nullptr;
  void *mean = nullptr, *inverse_std = nullptr, *scale = nullptr, *shift = nullptr;  // Real [channels]

  template <class P>
  VLA_HOST_DEVICE void finish(int64_t channel) const {
    using R = Real<P>;
    const double count = sums[2 * channels], exact_mean = sums[channel] / count;
    double variance = sums[channels + channel] / count - exact_mean * exact_mean;
    if (variance < 0) variance = 0;
    const R m = static_cast<R>(exact_mean), s = static_cast<R>(1 / std::sqrt(variance + eps));
    const R a = s * static_cast<R>(static_cast<const P*>(gamma)[channel]);
    static_cast<R*>(mean)[channel] = m;
    static_cast<R*>(inverse_std)[channel] = s;
    static_cast<R*>(scale)[channel] = a;
    static_cast<R*>(shift)[channel] = static_cast<R>(static_cast<const P*>(beta)[channel]) - m * a;
    move(static_cast<P*>(running_mean)[channel], exact_mean);
    move(static_cast<P*>(running_var)[channel], variance * (count / (count > 2 ? count - 1 : 1)));
    if (channel == 0) ++*batches;
  }

 private:
  template <class P>
  VLA_HOST_DEVICE void move(P& running, double to) const {
    using R = Real<P>;
    const R before = static_cast<R>(running), after = static_cast<R>(static_cast<P>(static_cast<R>(to)));
    running = static_cast<P>(before + static_cast<R>(momentum) * (after - before));
  }
};

constexpr int64_t kBatchNormBlocks = 256;  // at most so many parts of sums

// `partial`: Real [kBatchNormBlocks, 2, channels], for the launchers' own use.
cudaError_t batch_norm_moments_cuda(const BatchNorm& norm, const void* x, void* partial, double* sums, CudaElement type, cudaStream_t stream);
// `sums` float64 [2, channels], d_beta and d_gamma of `parameter_type`.
cudaError_t batch_norm_gradient_sums_cuda(const BatchNorm& norm, const void* gradient, const void* x, const void* y, const void* mean,
                                          const void* inverse_std, void* partial, double* sums, void* d_beta, void* d_gamma, CudaElement type,
                                          CudaElement parameter_type, cudaStream_t stream);
// `count`: float64 [1].
cudaError_t batch_norm_backward_cuda(const BatchNorm& norm, const void* gradient, const void* x, const void* y, const void* mean,
                                     const void* inverse_std, const void* scale, const double* sums, const double* count, void* dx,
                                     void* d_residual, CudaElement type, cudaStream_t stream);
cudaError_t batch_norm_constants_cuda(const BatchNormConstants& constants, CudaElement parameter_type, cudaStream_t stream);

}  // namespace vla
