// A variational encoder's sample and its divergence from the standard normal distribution (Kingma and Welling 2014, appendix B):
//     latent = mean + exp(log_variance / 2) * noise
//     divergence = sum over rows of weight * -1/2 * (1 + log_variance - mean² - exp(log_variance))
// Launchers as in channel_affine.hpp.
#pragma once

#include <cmath>

#include <cuda_runtime_api.h>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

struct LatentSample {
  int64_t rows = 0, dim = 0;
  const float* weight = nullptr;  // [rows]

  // Samples element `at` of latent [rows, dim]; gives its part of the divergence. parameters [rows, 2 * dim]: of each row means, then
  // logarithms of variances.
  template <class T>
  VLA_HOST_DEVICE Real<T> forward(const T* parameters, const T* noise, T* latent, int64_t at) const {
    using R = Real<T>;
    const R mean = static_cast<R>(parameters[mean_at(at)]), log_variance = static_cast<R>(parameters[mean_at(at) + dim]);
    const R deviation = std::exp(log_variance / 2);
    latent[at] = static_cast<T>(mean + deviation * static_cast<R>(noise[at]));
    return R{-0.5} * (1 + log_variance - mean * mean - deviation * deviation) * static_cast<R>(weight[at / dim]);
  }

  template <class T>
  VLA_HOST_DEVICE void backward(const T* parameters, const T* noise, const T* d_latent, Real<T> d_divergence, T* d_parameters, int64_t at) const {
    using R = Real<T>;
    const R mean = static_cast<R>(parameters[mean_at(at)]), deviation = std::exp(static_cast<R>(parameters[mean_at(at) + dim]) / 2);
    const R arriving = static_cast<R>(d_latent[at]), of_row = d_divergence * static_cast<R>(weight[at / dim]);
    d_parameters[mean_at(at)] = static_cast<T>(arriving + of_row * mean);
    d_parameters[mean_at(at) + dim] = static_cast<T>((arriving * deviation * static_cast<R>(noise[at]) + of_row * (deviation * deviation - 1)) / 2);
  }

 private:
  VLA_HOST_DEVICE int64_t mean_at(int64_t at) const { return at + at / dim * dim; }
};

// `divergence`: Real [1].
cudaError_t latent_sample_forward_cuda(const LatentSample& of, const void* parameters, const void* noise, void* latent, void* divergence,
                                       CudaElement type, cudaStream_t stream);
cudaError_t latent_sample_backward_cuda(const LatentSample& of, const void* parameters, const void* noise, const void* d_latent,
                                        const void* d_divergence, void* d_parameters, CudaElement type, cudaStream_t stream);

}  // namespace vla
