// Pixels of an image that is resized bilinearly (as ATen's upsample_bilinear2d without align_corners), padded and scaled, the same on CPU
// and CUDA.
#pragma once

#include "worker/cuda/image_bytes.hpp"

namespace vla {

struct ResizePixels {
  const void* input = nullptr;  // [images, channels, height, width] with any strides; of the output's type, or uint8
  bool bytes = false;  // uint8, which are read as byte / 255
  void* output = nullptr;  // [images, channels, out_height, out_width], contiguous: factor * pixel + shift
  int64_t strides[4] = {};
  int64_t images = 0, channels = 0, height = 0, width = 0, out_height = 0, out_width = 0;
  int64_t top = 0, left = 0, inner_height = 0, inner_width = 0;  // where the resized image stands; around it pixels are 0
  float factor = 1, shift = 0;

  VLA_HOST_DEVICE int64_t plane_size() const { return out_height * out_width; }  // below 2^31
};

// Between pixels `first` and `second` of a side of `size`, for place `at` of the resized side; ratio = size / the resized size.
template <class R>
struct PixelPair {
  int first, second;
  R share;  // of the second

  VLA_HOST_DEVICE PixelPair(int at, int size, R ratio) {
    const R place = ratio * (static_cast<R>(at) + R{0.5}) - R{0.5};
    const R inside = place < 0 ? 0 : place;
    first = static_cast<int>(inside);
    if (first > size - 1) first = size - 1;
    second = first < size - 1 ? first + 1 : first;
    share = inside - static_cast<R>(first);
  }
};

// N neighbouring pixels of a row from number `place` on, in every channel of an image.
template <class T, int N>
VLA_HOST_DEVICE void resize_pixels(const ResizePixels& of, int64_t image, int place) {
  using R = Real<T>;
  const int height = static_cast<int>(of.height), width = static_cast<int>(of.width), out_width = static_cast<int>(of.out_width);
  const int y = place / out_width - static_cast<int>(of.top), x = place % out_width - static_cast<int>(of.left);
  const bool is_inside = y >= 0 && y < of.inner_height;
  const R ratio = static_cast<R>(of.width) / static_cast<R>(of.inner_width);
  const PixelPair<R> row(y, height, static_cast<R>(of.height) / static_cast<R>(of.inner_height));
  for (int64_t channel = 0; channel < of.channels; ++channel) {
    const int64_t start = image * of.strides[0] + channel * of.strides[1];
    const int64_t above = start + row.first * of.strides[2], below = start + row.second * of.strides[2];
    const auto at = [&](int64_t line, int column) {
      const int64_t from = line + column * of.strides[3];
      return of.bytes ? static_cast<R>(share_of_255(static_cast<const uint8_t*>(of.input)[from])) : static_cast<R>(static_cast<const T*>(of.input)[from]);
    };
    Pack<T, N> pixels;
    for (int i = 0; i < N; ++i) {
      R pixel = 0;
      if (is_inside && x + i >= 0 && x + i < of.inner_width) {
        const PixelPair<R> column(x + i, width, ratio);
        const auto between = [&](int64_t line) { return (1 - column.share) * at(line, column.first) + column.share * at(line, column.second); };
        pixel = (1 - row.share) * between(above) + row.share * between(below);
      }
      pixels.at[i] = static_cast<T>(static_cast<R>(of.factor) * pixel + static_cast<R>(of.shift));
    }
    store(static_cast<T*>(of.output) + (image * of.channels + channel) * of.plane_size() + place, pixels);
  }
}

}  // namespace vla
