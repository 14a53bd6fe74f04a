// A ResNet's first layer after its convolution: relu(x * scale + shift), then the largest of each 3x3 window at stride 2 with padding 1,
// in one pass. Tensors [images, height, width, channels]. What backward needs is one byte an output: which of the window's nine it was.
// Launchers as in channel_affine.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include "worker/cuda/channel_affine.hpp"

namespace vla {

struct AffinePool {
  static constexpr uint8_t kNone = 255;  // none is above zero: no gradient

  int64_t images = 0, height = 0, width = 0, channels = 0;
  const void* scale = nullptr;  // Real [channels]
  const void* shift = nullptr;

  VLA_HOST_DEVICE int64_t out_height() const { return (height - 1) / 2 + 1; }
  VLA_HOST_DEVICE int64_t out_width() const { return (width - 1) / 2 + 1; }
  VLA_HOST_DEVICE int64_t outputs() const { return images * out_height() * out_width(); }

  struct Place {
    int64_t image, row, column;
  };
  // There are fewer than 2^32 pixels: divisions of 64 bits would take longer than the memory.
  VLA_HOST_DEVICE static Place place_of(int64_t pixel, int64_t height, int64_t width) {
    const auto at = static_cast<uint32_t>(pixel), h = static_cast<uint32_t>(height), w = static_cast<uint32_t>(width);
    return {at / w / h, at / w % h, at % w};
  }

  // N channels from `channel` on of outputs `first`, `first + step` ….
  template <int N, class T>
  VLA_HOST_DEVICE void forward(const T* x, T* y, uint8_t* chosen, int64_t channel, int64_t first, int64_t step) const {
    using R = Real<T>;
    const auto a = load<N>(static_cast<const R*>(scale) + channel);
    const auto b = load<N>(static_cast<const R*>(shift) + channel);
    for (int64_t output = first; output < outputs(); output += step) {
      const Place at = place_of(output, out_height(), out_width());
      Pack<R, N> largest = {};
      Pack<uint8_t, N> place;
      for (int i = 0; i < N; ++i) place.at[i] = kNone;
      for (int dy = 0; dy < 3; ++dy) {
        for (int dx = 0; dx < 3; ++dx) {
          const int64_t row = 2 * at.row + dy - 1, column = 2 * at.column + dx - 1;
          if (row < 0 || row >= height || column < 0 || column >= width) continue;
          const auto values = load<N>(x + ((at.image * height + row) * width + column) * channels + channel);
          for (int i = 0; i < N; ++i) {
            const R value = static_cast<R>(values.at[i]) * a.at[i] + b.at[i];
            if (value > largest.at[i] || value != value) {
              largest.at[i] = value;
              place.at[i] = static_cast<uint8_t>(3 * dy + dx);
            }
          }
        }
      }
      Pack<T, N> result;
      for (int i = 0; i < N; ++i) result.at[i] = static_cast<T>(largest.at[i]);
      store<N>(y + output * channels + channel, result);
      store<N>(chosen + output * channels + channel, place);
    }
  }

  // N channels of input pixels `first`, `first + step` …: each collects from the one, two or four windows that it lies in.
  template <int N, class T>
  VLA_HOST_DEVICE void backward(const T* gradient, const uint8_t* chosen, T* dx, int64_t channel, int64_t first, int64_t step) const {
    using R = Real<T>;
    const auto a = load<N>(static_cast<const R*>(scale) + channel);
    for (int64_t pixel = first; pixel < images * height * width; pixel += step) {
      const auto [image, row, column] = place_of(pixel, height, width);
      Pack<R, N> sum = {};
      for (int64_t window_row = row / 2; window_row <= (row + 1) / 2; ++window_row) {
        for (int64_t window_column = column / 2; window_column <= (column + 1) / 2; ++window_column) {
          if (window_row >= out_height() || window_column >= out_width()) continue;
          const int64_t at = ((image * out_height() + window_row) * out_width() + window_column) * channels + channel;
          const auto own = static_cast<uint8_t>(3 * (row + 1 - 2 * window_row) + column + 1 - 2 * window_column);
          const auto values = load<N>(gradient + at);
          const auto place = load<N>(chosen + at);
          for (int i = 0; i < N; ++i) {
            if (place.at[i] == own) sum.at[i] += static_cast<R>(values.at[i]);
          }
        }
      }
      Pack<T, N> result;
      for (int i = 0; i < N; ++i) result.at[i] = static_cast<T>(sum.at[i] * a.at[i]);
      store<N>(dx + pixel * channels + channel, result);
    }
  }
};

cudaError_t affine_pool_forward_cuda(const AffinePool& pool, const void* x, void* y, uint8_t* chosen, CudaElement type, cudaStream_t stream);
cudaError_t affine_pool_backward_cuda(const AffinePool& pool, const void* gradient, const uint8_t* chosen, void* dx, CudaElement type,
                                      cudaStream_t stream);

}  // namespace vla
