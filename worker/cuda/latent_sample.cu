#include "worker/cuda/latent_sample.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

constexpr int kSampleThreads = 512;

// One block, which adds up in a fixed order: a batch has a few thousand numbers.
template <class T>
__global__ void sample_kernel(LatentSample of, const T* parameters, const T* noise, T* latent, Real<T>* divergence) {
  __shared__ Real<T> sums[kSampleThreads];
  Real<T> sum = 0;
  for (int64_t at = threadIdx.x; at < of.rows * of.dim; at += kSampleThreads) sum += of.forward(parameters, noise, latent, at);
  sums[threadIdx.x] = sum;
  for (unsigned half = kSampleThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *divergence = sums[0];
}

template <class T>
__global__ void sample_gradient_kernel(LatentSample of, const T* parameters, const T* noise, const T* d_latent, const Real<T>* d_divergence,
                                       T* d_parameters) {
  const int64_t at = int64_t{blockIdx.x} * kSampleThreads + threadIdx.x;
  if (at < of.rows * of.dim) of.backward(parameters, noise, d_latent, *d_divergence, d_parameters, at);
}

}  // namespace

cudaError_t latent_sample_forward_cuda(const LatentSample& of, const void* parameters, const void* noise, void* latent, void* divergence,
                                       CudaElement type, cudaStream_t stream) {
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    sample_kernel<T><<<1, kSampleThreads, 0, stream>>>(of, static_cast<const T*>(parameters), static_cast<const T*>(noise),
                                                       static_cast<T*>(latent), static_cast<Real<T>*>(divergence));
  });
}

cudaError_t latent_sample_backward_cuda(const LatentSample& of, const void* parameters, const void* noise, const void* d_latent,
                                        const void* d_divergence, void* d_parameters, CudaElement type, cudaStream_t stream) {
  if (of.rows * of.dim == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    const auto blocks = static_cast<unsigned>((of.rows * of.dim + kSampleThreads - 1) / kSampleThreads);
    sample_gradient_kernel<T><<<blocks, kSampleThreads, 0, stream>>>(of, static_cast<const T*>(parameters), static_cast<const T*>(noise),
                                                                     static_cast<const T*>(d_latent), static_cast<const Real<T>*>(d_divergence),
                                                                     static_cast<T*>(d_parameters));
  });
}

}  // namespace vla
