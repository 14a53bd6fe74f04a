// What the wrappers of our kernels share: which tensors a kernel takes, and how it is started.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "worker/cuda/counter_random.hpp"

namespace vla {

inline CudaElement kernel_element(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return CudaElement::kFloat64;
    case at::kFloat: return CudaElement::kFloat32;
    case at::kBFloat16: return CudaElement::kBFloat16;
    case at::kHalf: return CudaElement::kFloat16;
    default: TORCH_CHECK(false, "no kernel for ", type);
  }
}

// On the device and the current stream of `place`: launch(stream) -> cudaError_t.
template <class Launch>
void launch_on(const at::Tensor& place, Launch launch) {
  const c10::cuda::CUDAGuard guard(place.device());
  C10_CUDA_CHECK(launch(c10::cuda::getCurrentCUDAStream().stream()));
}

// Contiguous memory that can be read 16 bytes at a time in rows of a multiple of eight numbers.
inline bool has_chunked_rows(const at::Tensor& x) {
  return x.is_contiguous() && x.size(-1) % 8 == 0 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

}  // namespace vla
