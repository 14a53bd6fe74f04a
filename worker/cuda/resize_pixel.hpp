// resize_pixel.hpp on a GPU: a thread for 16 bytes of an image's row in every channel; the output lies at multiples of that. Asynchronous on `stream`; the current device must own the pointers. Returns the
// launch's status.
#pragma once

#include "worker/cuda/counter_random.hpp"
#include "worker/policies/nn/resize_pixel.hpp"

namespace vla {

cudaError_t resize_pixels_cuda(const ResizePixels& of, CudaElement type, cudaStream_t stream);

}  // namespace vla
