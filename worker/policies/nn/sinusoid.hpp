// Fixed sinusoidal position tables, float32 on the CPU, computed as LeRobot's ACT does ("Attention Is All You Need"
// and its two-dimensional variant from DETR).
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

// float32 [positions, dim]: position / 10000^(2*(j/2)/dim); even j sine, odd j cosine.
at::Tensor sinusoid_table(int64_t positions, int64_t dim);

// float32 [height*width, dim], row-major pixels: the first half of `dim` encodes y, the second x, both scaled to (0, 2*pi].
at::Tensor sinusoid_grid(int64_t height, int64_t width, int64_t dim);

}  // namespace vla
