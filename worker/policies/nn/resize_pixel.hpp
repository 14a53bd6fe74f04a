// A pixel of an image that is resized bilinearly (as ATen's upsample_bilinear2d without align_corners), padded and scaled, the same on CPU
// and CUDA.
#pragma once

#include "worker/cuda/pack.hpp"

namespace vla {

struct ResizePixels {
  const void* input = nullptr;  // [images, channels, height, width] with any strides; of the output's type, or uint8
  bool bytes = false;  // uint8, which are read as byte / 255
  void* output = nullptr;  // [images, channels, out_height, out_width], contiguous: factor * pixel + shift
  int64_t strides[4] = {};
  int64_t images = 0, channels = 0, height = 0, width = 0, out_height = 0, out_width = 0;
  int64_t top = 0, left = 0, inner_height = 0, inner_width = 0;  // where the resized image stands; around it pixels are 0
  float factor = 1, shift = 0;

  VLA_HOST_DEVICE int64_t planes() const { return images * channels; }
  VLA_HOST_DEVICE int64_t plane_size() const { return out_height * out_width; }  // below 2^31
};

// Between pixels `first` and `second` of a side of `size`, for place `at` of `inner`.
template <class R>
struct PixelPair {
  int first, second;
  R share;  // of the second

  VLA_HOST_DEVICE PixelPair(int at, int size, int inner) {
    const R place = static_cast<R>(size) / static_cast<R>(inner) * (static_cast<R>(at) + R{0.5}) - R{0.5};
    const R inside = place < 0 ? 0 : place;
    first = static_cast<int>(inside);
    if (first > size - 1) first = size - 1;
    second = first < size - 1 ? first + 1 : first;
    share = inside - static_cast<R>(first);
  }
};

// Pixel number `place` of plane `plane` of all images' channels.
template <class T>
VLA_HOST_DEVICE void resize_pixel(const ResizePixels& of, int64_t plane, int place) {
  using R = Real<T>;
  const int out_width = static_cast<int>(of.out_width);
  const int y = place / out_width - static_cast<int>(of.top), x = place % out_width - static_cast<int>(of.left);
  R pixel = 0;
  if (x >= 0 && x < of.inner_width && y >= 0 && y < of.inner_height) {
    const int64_t start = plane / of.channels * of.strides[0] + plane % of.channels * of.strides[1];
    const PixelPair<R> row(y, static_cast<int>(of.height), static_cast<int>(of.inner_height)), column(x, static_cast<int>(of.width), static_cast<int>(of.inner_width));
    const auto at = [&](int r, int c) {
      const int64_t place = start + r * of.strides[2] + c * of.strides[3];
      if (of.bytes) return static_cast<R>(static_cast<float>(static_cast<const uint8_t*>(of.input)[place]) / 255.0f);
      return static_cast<R>(static_cast<const T*>(of.input)[place]);
    };
    const R above = (1 - column.share) * at(row.first, column.first) + column.share * at(row.first, column.second);
    const R below = (1 - column.share) * at(row.second, column.first) + column.share * at(row.second, column.second);
    pixel = (1 - row.share) * above + row.share * below;
  }
  static_cast<T*>(of.output)[plane * of.plane_size() + place] = static_cast<T>(static_cast<R>(of.factor) * pixel + static_cast<R>(of.shift));
}

}  // namespace vla
