#include "worker/cuda/masked_error.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

constexpr int kErrorThreads = 256;

template <class T>
__global__ void error_sums_kernel(MaskedError error, const T* prediction, const T* target, Real<T>* sums) {
  __shared__ Real<T> shared[kErrorThreads];
  shared[threadIdx.x] = error.sum(prediction, target, blockIdx.x, threadIdx.x, kErrorThreads);
  for (unsigned half = kErrorThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
}

template <class T>
__global__ void error_gradient_kernel(MaskedError error, const T* prediction, const T* target, const Real<T>* scale, T* gradient) {
  for (int64_t element = threadIdx.x; element < error.row_size(); element += kErrorThreads) {
    gradient[blockIdx.x * error.row_size() + element] = error.gradient(prediction, target, *scale, blockIdx.x, element);
  }
}

template <class T>
__global__ void add_noise_kernel(AddNoise add, const T* clean, const T* noise, T* noisy) {
  const int64_t at = int64_t{blockIdx.x} * kErrorThreads + threadIdx.x;
  if (at < add.rows * add.row_size) noisy[at] = add.noisy(clean, noise, at);
}

}  // namespace

cudaError_t masked_error_sums_cuda(const MaskedError& error, const void* prediction, const void* target, void* sums, CudaElement type,
                                   cudaStream_t stream) {
  if (error.rows == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    error_sums_kernel<T><<<static_cast<unsigned>(error.rows), kErrorThreads, 0, stream>>>(error, static_cast<const T*>(prediction),
                                                                                          static_cast<const T*>(target), static_cast<Real<T>*>(sums));
  });
}

cudaError_t masked_error_gradient_cuda(const MaskedError& error, const void* prediction, const void* target, const void* scale, void* gradient,
                                       CudaElement type, cudaStream_t stream) {
  if (error.rows == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    error_gradient_kernel<T><<<static_cast<unsigned>(error.rows), kErrorThreads, 0, stream>>>(
        error, static_cast<const T*>(prediction), static_cast<const T*>(target), static_cast<const Real<T>*>(scale), static_cast<T*>(gradient));
  });
}

cudaError_t add_noise_cuda(const AddNoise& add, const void* clean, const void* noise, void* noisy, CudaElement type, cudaStream_t stream) {
  const int64_t elements = add.rows * add.row_size;
  if (elements == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    add_noise_kernel<T><<<static_cast<unsigned>((elements + kErrorThreads - 1) / kErrorThreads), kErrorThreads, 0, stream>>>(
        add, static_cast<const T*>(clean), static_cast<const T*>(noise), static_cast<T*>(noisy));
  });
}

}  // namespace vla
