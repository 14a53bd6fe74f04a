// What wrappers of own kernels share: the kernel's name of a dtype, the current stream, and the CPU's loop over the same arithmetic.
#pragma once

#include <optional>

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

// Functions of autograd take absent tensors only so.
inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; }

// f(i) of each i < count, on all threads, with `least` or more for each.
template <class F>
void for_each(int64_t count, const F& f, int64_t least = 1) {
  at::parallel_for(0, count, least, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

// Contiguous, and where packs of 16 bytes can be read.
inline at::Tensor packed(const at::Tensor& tensor, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  const at::Tensor result = tensor.contiguous(format);
  return reinterpret_cast<uintptr_t>(result.const_data_ptr()) % 16 == 0 ? result : result.clone(format);
}

// Null where the tensor is undefined.
template <class T>
const T* in_ptr(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T>
T* out_ptr(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}
inline const void* in_ptr(const at::Tensor& tensor) { return in_ptr<void>(tensor); }
inline void* out_ptr(const at::Tensor& tensor) { return out_ptr<void>(tensor); }

}  // namespace vla
