// Images [images, height, width, 3] of even sides, folded 2x2: [images, height / 2 + 1, width / 2 + 1, 16], of which place (y, x) has pixels
// (2 y - 1, 2 x - 1) to (2 y, 2 x), row by row, of four numbers each, the last of them 0, as is what lies outside the image. A 7x7 convolution
// of stride 2 with padding 3 is a 4x4 one of stride 1 with padding 1 on them. Launcher as in channel_affine.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

struct FoldPixels {
  int64_t images = 0, height = 0, width = 0;

  VLA_HOST_DEVICE int64_t folded_height() const { return height / 2 + 1; }
  VLA_HOST_DEVICE int64_t folded_width() const { return width / 2 + 1; }

  // Pixel `part` < 4 of place (y, x).
  template <class T>
  VLA_HOST_DEVICE void fold(const T* in, T* out, int64_t image, int64_t y, int64_t x, int part) const {
    const int64_t row = 2 * y - 1 + part / 2, column = 2 * x - 1 + part % 2;
    Pack<T, 4> pixel = {};
    if (row >= 0 && row < height && column >= 0 && column < width) {
      for (int channel = 0; channel < 3; ++channel) pixel.at[channel] = in[((image * height + row) * width + column) * 3 + channel];
    }
    store<4>(out + (((image * folded_height() + y) * folded_width() + x) * 4 + part) * 4, pixel);
  }
};

cudaError_t fold_pixels_cuda(const FoldPixels& of, const void* in, void* out, CudaElement type, cudaStream_t stream);

}  // namespace vla
