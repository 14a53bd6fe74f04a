// Group norm, Mish (Misra 2019: x * tanh(softplus(x))) and what diffusion policy's U-Net does next, over [rows, steps, channels]: the
// condition scales and shifts each channel of a row, or a residual is added. One block for a row's group of channels, whose sums are
// shared by a team: the block's threads, or the CPU's one. Launchers as in channel_affine.hpp.
#pragma once

#include <cmath>

#include <cuda_runtime_api.h>

#include "worker/cuda/counter_random.hpp"
#include "worker/cuda/pack.hpp"

namespace vla {

// tanh(softplus(x)), and the derivative of Mish.
template <class R>
VLA_HOST_DEVICE inline R mish_gate(R x, R& derivative) {
  if (x > R{20}) {  // both are 1 to the last bit
    derivative = 1;
    return 1;
  }
  const R e = std::exp(x), n = e * (e + 2), gate = n / (n + 2);
  derivative = gate + x * (1 - gate * gate) * (e / (1 + e));
  return gate;
}

struct GroupNormMish {
  int64_t rows = 0, steps = 0, channels = 0, groups = 1;
  double eps = 0;
  bool shifts = false, scales = false;  // by `modulation`, [rows, channels] of shifts, or [rows, 2 * channels], scales first

  VLA_HOST_DEVICE int64_t group_channels() const { return channels / groups; }

  // T: of x, modulation, residual (or null) and y; P: of gamma and beta. mean, inverse_std Real [rows, groups].
  template <class T, class P>
  struct Forward {
    const T* x;
    const P *gamma, *beta;
    const T *modulation, *residual;
    T* y;
    Real<T> *mean, *inverse_std;
  };

  template <class T, class P, class Team>
  VLA_HOST_DEVICE void forward(const Forward<T, P>& of, int64_t row, int64_t group, const Team& team) const {
    using R = Real<T>;
    const int64_t first = group * group_channels(), end = first + group_channels();
    const T* x = of.x + row * steps * channels;
    const R count = static_cast<R>(group_channels() * steps);
    R sum = 0, squares = 0;
    for (int64_t c = first + team.begin(); c < end; c += team.size()) {
      for (int64_t t = 0; t < steps; ++t) sum += static_cast<R>(x[t * channels + c]);
    }
    const R mean = team.sum(sum) / count;
    for (int64_t c = first + team.begin(); c < end; c += team.size()) {
      for (int64_t t = 0; t < steps; ++t) {
        const R centred = static_cast<R>(x[t * channels + c]) - mean;
        squares += centred * centred;
      }
    }
    const R inverse_std = 1 / std::sqrt(team.sum(squares) / count + static_cast<R>(eps));
    if (team.begin() == 0) {
      of.mean[row * groups + group] = mean;
      of.inverse_std[row * groups + group] = inverse_std;
    }
    for (int64_t c = first + team.begin(); c < end; c += team.size()) {
      const R gamma = static_cast<R>(of.gamma[c]), beta = static_cast<R>(of.beta[c]);
      const R scale = scales ? static_cast<R>(of.modulation[row * 2 * channels + c]) : R{1};
      const R shift = shift_of(of.modulation, row, c);
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t at = (row * steps + t) * channels + c;
        const R value = (static_cast<R>(x[t * channels + c]) - mean) * inverse_std * gamma + beta;
        R unused;
        R result = scale * (value * mish_gate(value, unused)) + shift;
        if (of.residual != nullptr) result += static_cast<R>(of.residual[at]);
        of.y[at] = static_cast<T>(result);
      }
    }
  }

  // d_gamma, d_beta: of each row, Real [rows, channels]. d_modulation like modulation.
  template <class T, class P>
  struct Backward {
    const T *gradient, *x;
    const P *gamma, *beta;
    const T* modulation;
    const Real<T> *mean, *inverse_std;
    T *dx, *d_modulation;
    Real<T> *d_gamma, *d_beta;
  };

  template <class T, class P, class Team>
  VLA_HOST_DEVICE void backward(const Backward<T, P>& of, int64_t row, int64_t group, const Team& team) const {
    using R = Real<T>;
    const int64_t first = group * group_channels(), end = first + group_channels();
    const R mean = of.mean[row * groups + group], inverse_std = of.inverse_std[row * groups + group];
    R sum = 0, products = 0;
    for (int64_t c = first + team.begin(); c < end; c += team.size()) {
      const R gamma = static_cast<R>(of.gamma[c]), beta = static_cast<R>(of.beta[c]);
      const R scale = scales ? static_cast<R>(of.modulation[row * 2 * channels + c]) : R{1};
      R d_gamma = 0, d_beta = 0, d_scale = 0, d_shift = 0;
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t at = (row * steps + t) * channels + c;
        const R gradient = static_cast<R>(of.gradient[at]), normalized = (static_cast<R>(of.x[at]) - mean) * inverse_std;
        const R value = normalized * gamma + beta;
        R derivative;
        d_scale += gradient * value * mish_gate(value, derivative);
        d_shift += gradient;
        d_beta += gradient * scale * derivative;
        d_gamma += gradient * scale * derivative * normalized;
      }
      of.d_gamma[row * channels + c] = d_gamma;
      of.d_beta[row * channels + c] = d_beta;
      if (scales) of.d_modulation[row * 2 * channels + c] = static_cast<T>(d_scale);
      if (scales || shifts) of.d_modulation[scales ? (row * 2 + 1) * channels + c : row * channels + c] = static_cast<T>(d_shift);
      sum += gamma * d_beta;
      products += gamma * d_gamma;
    }
    const R count = static_cast<R>(group_channels() * steps);
    const R mean_sum = team.sum(sum) / count, mean_product = team.sum(products) / count;
    for (int64_t c = first + team.begin(); c < end; c += team.size()) {
      const R gamma = static_cast<R>(of.gamma[c]), beta = static_cast<R>(of.beta[c]);
      const R scale = scales ? static_cast<R>(of.modulation[row * 2 * channels + c]) : R{1};
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t at = (row * steps + t) * channels + c;
        const R normalized = (static_cast<R>(of.x[at]) - mean) * inverse_std;
        R derivative;
        mish_gate(normalized * gamma + beta, derivative);
        const R d_value = static_cast<R>(of.gradient[at]) * scale * derivative;
        of.dx[at] = static_cast<T>(inverse_std * (gamma * d_value - mean_sum - normalized * mean_product));
      }
    }
  }

 private:
  template <class T>
  VLA_HOST_DEVICE Real<T> shift_of(const T* modulation, int64_t row, int64_t channel) const {
    if (scales) return static_cast<Real<T>>(modulation[(row * 2 + 1) * channels + channel]);
    return shifts ? static_cast<Real<T>>(modulation[row * channels + channel]) : Real<T>{0};
  }
};

// Null where there is none, or where forward or backward does not need it.
struct GroupNormMishTensors {
  const void *gradient = nullptr, *x = nullptr, *gamma = nullptr, *beta = nullptr, *modulation = nullptr, *residual = nullptr;
  void *y = nullptr, *mean = nullptr, *inverse_std = nullptr;
  void *dx = nullptr, *d_modulation = nullptr, *d_gamma = nullptr, *d_beta = nullptr;

  template <class T, class P>
  GroupNormMish::Forward<T, P> forward() const {
    return {static_cast<const T*>(x), static_cast<const P*>(gamma), static_cast<const P*>(beta), static_cast<const T*>(modulation),
            static_cast<const T*>(residual), static_cast<T*>(y), static_cast<Real<T>*>(mean), static_cast<Real<T>*>(inverse_std)};
  }
  template <class T, class P>
  GroupNormMish::Backward<T, P> backward() const {
    return {static_cast<const T*>(gradient), static_cast<const T*>(x), static_cast<const P*>(gamma), static_cast<const P*>(beta),
            static_cast<const T*>(modulation), static_cast<const Real<T>*>(mean), static_cast<const Real<T>*>(inverse_std), static_cast<T*>(dx),
            static_cast<T*>(d_modulation), static_cast<Real<T>*>(d_gamma), static_cast<Real<T>*>(d_beta)};
  }
};

// `real_parameters`: gamma and beta are Real, else of `type`.
cudaError_t group_norm_mish_forward_cuda(const GroupNormMish& norm, const GroupNormMishTensors& tensors, CudaElement type,
                                         bool real_parameters, cudaStream_t stream);
cudaError_t group_norm_mish_backward_cuda(const GroupNormMish& norm, const GroupNormMishTensors& tensors, CudaElement type,
                                          bool real_parameters, cudaStream_t stream);

}  // namespace vla
