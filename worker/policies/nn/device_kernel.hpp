// What wrappers of own kernels share: the kernel's name of a dtype, the current stream, and the CPU's loop over the same arithmetic.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "worker/cuda/counter_random.hpp"

namespace vla {

inline CudaElement element_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble: return CudaElement::kFloat64;
    case at::kFloat: return CudaElement::kFloat32;
    case at::kBFloat16: return CudaElement::kBFloat16;
    case at::kHalf: return CudaElement::kFloat16;
    default: TORCH_CHECK(false, "no kernel for dtype ", tensor.scalar_type());
  }
}

// The dtype that sums over elements of `tensor` are kept in.
inline at::ScalarType sum_type(const at::Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// On a GPU `launch(stream)`, else `loop(element)` with a value of the tensor's C++ type.
template <class Launch, class Loop>
void run_kernel(const at::Tensor& tensor, const Launch& launch, const Loop& loop) {
  if (tensor.is_cuda()) {
    const c10::cuda::CUDAGuard guard(tensor.device());
    C10_CUDA_CHECK(launch(c10::cuda::getCurrentCUDAStream().stream()));
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, tensor.scalar_type(), "run_kernel", [&] { loop(scalar_t{}); });
}

template <class T>
const T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T>
T* mutable_data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}
inline const void* data(const at::Tensor& tensor) { return data<void>(tensor); }
inline void* mutable_data(const at::Tensor& tensor) { return mutable_data<void>(tensor); }

}  // namespace vla
