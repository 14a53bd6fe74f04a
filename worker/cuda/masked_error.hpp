// Losses of chunks of actions [rows, steps, dim]: the sum over each row of squared or absolute errors that count, its gradient, and the
// noise that a diffusion model's input gets by the row's timestep. Launchers as in channel_affine.hpp.
#pragma once

#include <cmath>

#include <cuda_runtime_api.h>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

struct MaskedError {
  int64_t rows = 0, steps = 0, dim = 0;
  bool squares = false;  // else absolute values
  const float* weight = nullptr;  // [rows]
  const bool* is_pad = nullptr;  // [rows, steps]: errors that do not count; null = all do

  VLA_HOST_DEVICE int64_t row_size() const { return steps * dim; }
  VLA_HOST_DEVICE bool counts(int64_t row, int64_t element) const {
    return is_pad == nullptr || !is_pad[row * steps + static_cast<uint32_t>(element) / static_cast<uint32_t>(dim)];
  }

  // A row's sum over elements `first`, `first + step` ….
  template <class T>
  VLA_HOST_DEVICE Real<T> sum(const T* prediction, const T* target, int64_t row, int64_t first, int64_t step) const {
    using R = Real<T>;
    R total = 0;
    for (int64_t element = first; element < row_size(); element += step) {
      if (!counts(row, element)) continue;
      const R error = static_cast<R>(prediction[row * row_size() + element]) - static_cast<R>(target[row * row_size() + element]);
      total += squares ? error * error : std::abs(error);
    }
    return total * weight[row];
  }

  // `scale`: the gradient that reaches the sum.
  template <class T>
  VLA_HOST_DEVICE T gradient(const T* prediction, const T* target, Real<T> scale, int64_t row, int64_t element) const {
    using R = Real<T>;
    if (!counts(row, element)) return static_cast<T>(R{0});
    const R error = static_cast<R>(prediction[row * row_size() + element]) - static_cast<R>(target[row * row_size() + element]);
    const R slope = squares ? 2 * error : static_cast<R>((error > 0) - (error < 0));
    return static_cast<T>(scale * weight[row] * slope);
  }
};

// sqrt(a) * clean + sqrt(1 - a) * noise, of tensors [rows, row_size].
struct AddNoise {
  int64_t rows = 0, row_size = 0, timesteps = 0;
  const float* alphas = nullptr;  // [timesteps]
  const int64_t* timestep = nullptr;  // [rows]

  template <class T>
  VLA_HOST_DEVICE T noisy(const T* clean, const T* noise, int64_t at) const {
    using R = Real<T>;
    const R alpha = static_cast<R>(alphas[timestep[at / row_size]]);
    return static_cast<T>(std::sqrt(alpha) * static_cast<R>(clean[at]) + std::sqrt(1 - alpha) * static_cast<R>(noise[at]));
  }
};

// `sums`: Real [rows].
cudaError_t masked_error_sums_cuda(const MaskedError& error, const void* prediction, const void* target, void* sums, CudaElement type,
                                   cudaStream_t stream);
// `scale`: Real [1].
cudaError_t masked_error_gradient_cuda(const MaskedError& error, const void* prediction, const void* target, const void* scale, void* gradient,
                                       CudaElement type, cudaStream_t stream);
cudaError_t add_noise_cuda(const AddNoise& add, const void* clean, const void* noise, void* noisy, CudaElement type, cudaStream_t stream);

}  // namespace vla
