// Group norm with what follows it over [rows, steps, channels]. In diffusion policy's U-Net: Mish (Misra 2019: x * tanh(softplus(x))), then
// the condition scales and shifts each channel of a row, or a residual is added. In its ResNet: a residual is added, then relu. A team
// (team.hpp) has a row's group of channels: the threads of a block, or the CPU's one. Each of them takes packs of Team::kPack channels, and
// of these some steps:
//     channel(), + channels_at_once() … and step(), + steps_at_once() …
//     sum(value): over the team; every thread gets it
//     sum_steps(sums, kinds, width, f): f(kind, channel < width, sum) once for each, with what the threads of a channel have in sums[kind]
// Launchers as in channel_affine.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/cuda/channel_affine.hpp"
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
  bool mish = true, relu = false;
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
    constexpr int N = Team::kPack;
    const R count = static_cast<R>(group_channels() * steps);
    R sum = 0, squares = 0;
    for_each_pack(row, group, team, [&](int64_t, int64_t at) {
      const auto x = load<N>(of.x + at);
      for (int i = 0; i < N; ++i) sum += static_cast<R>(x.at[i]);
    });
    const R mean = team.sum(sum) / count;
    for_each_pack(row, group, team, [&](int64_t, int64_t at) {
      const auto x = load<N>(of.x + at);
      for (int i = 0; i < N; ++i) squares += (static_cast<R>(x.at[i]) - mean) * (static_cast<R>(x.at[i]) - mean);
    });
    const R inverse_std = 1 / std::sqrt(team.sum(squares) / count + static_cast<R>(eps));
    if (team.channel() == 0 && team.step() == 0) {
      of.mean[row * groups + group] = mean;
      of.inverse_std[row * groups + group] = inverse_std;
    }
    for_each_pack(row, group, team, [&](int64_t c, int64_t at) {
      const auto x = load<N>(of.x + at);
      Pack<T, N> y, residual = {};
      if (of.residual != nullptr) residual = load<N>(of.residual + at);
      const Channels<R, N> channel(*this, of, row, c);
      for (int i = 0; i < N; ++i) {
        const R value = (static_cast<R>(x.at[i]) - mean) * inverse_std * channel.gamma[i] + channel.beta[i];
        R unused;
        R result = channel.scale[i] * (value * gate(value, unused)) + channel.shift[i];
        if (of.residual != nullptr) result += static_cast<R>(residual.at[i]);
        y.at[i] = static_cast<T>(relu ? relu_of(result) : result);
      }
      store<N>(of.y + at, y);
    });
  }

  // y is read with relu only, and d_residual may be null: without relu it is the gradient. of_rows: Real [2, rows, channels], each row's
  // gradients of gamma and of beta; d_parameters: [2, channels], their sums. d_modulation like modulation.
  template <class T, class P>
  struct Backward {
    const T *gradient, *x, *y;
    const P *gamma, *beta;
    const T* modulation;
    const Real<T> *mean, *inverse_std;
    T *dx, *d_residual, *d_modulation;
    Real<T>* of_rows;
    P* d_parameters;
  };

  template <class T, class P, class Team>
  VLA_HOST_DEVICE void backward(const Backward<T, P>& of, int64_t row, int64_t group, const Team& team) const {
    using R = Real<T>;
    constexpr int N = Team::kPack;
    const int64_t first = group * group_channels();
    const R mean = of.mean[row * groups + group], inverse_std = of.inverse_std[row * groups + group];
    R sum = 0, products = 0;
    for (int64_t begin = 0; begin < group_channels(); begin += team.channels_at_once()) {  // the same for all threads
      R sums[kChannelSums][N] = {};
      if (begin + team.channel() < group_channels()) {
        const int64_t c = first + begin + team.channel();
        const Channels<R, N> channel(*this, of, row, c);
        for (int64_t t = team.step(); t < steps; t += team.steps_at_once()) {
          const int64_t at = (row * steps + t) * channels + c;
          const auto x = load<N>(of.x + at), gradient = arriving_gradient<N>(of, at);
          for (int i = 0; i < N; ++i) {
            const R arriving = static_cast<R>(gradient.at[i]), normalized = (static_cast<R>(x.at[i]) - mean) * inverse_std;
            const R value = normalized * channel.gamma[i] + channel.beta[i];
            R derivative;
            sums[kScale][i] += arriving * value * gate(value, derivative);
            sums[kShift][i] += arriving;
            sums[kBeta][i] += arriving * channel.scale[i] * derivative;
            sums[kGamma][i] += arriving * channel.scale[i] * derivative * normalized;
          }
        }
        for (int i = 0; i < N; ++i) {
          sum += channel.gamma[i] * sums[kBeta][i];
          products += channel.gamma[i] * sums[kGamma][i];
        }
      }
      team.sum_steps(sums, scales ? kScale + 1 : shifts ? kShift + 1 : kBeta + 1, group_channels() - begin,
                     [&](int kind, int64_t channel, R value) { store_sum(of, row, first + begin + channel, kind, value); });
    }
    const R count = static_cast<R>(group_channels() * steps);
    const R mean_sum = team.sum(sum) / count, mean_product = team.sum(products) / count;
    for_each_pack(row, group, team, [&](int64_t c, int64_t at) {
      const auto x = load<N>(of.x + at), gradient = arriving_gradient<N>(of, at);
      if (of.d_residual != nullptr) store<N>(of.d_residual + at, gradient);
      const Channels<R, N> channel(*this, of, row, c);
      Pack<T, N> dx;
      for (int i = 0; i < N; ++i) {
        const R normalized = (static_cast<R>(x.at[i]) - mean) * inverse_std;
        R derivative;
        gate(normalized * channel.gamma[i] + channel.beta[i], derivative);
        const R d_value = static_cast<R>(gradient.at[i]) * channel.scale[i] * derivative;
        dx.at[i] = static_cast<T>(inverse_std * (channel.gamma[i] * d_value - mean_sum - normalized * mean_product));
      }
      store<N>(of.dx + at, dx);
    });
  }

  // Element `at` of d_parameters.
  template <class T, class P>
  VLA_HOST_DEVICE void sum_rows(const Backward<T, P>& of, int64_t at) const {
    Real<T> sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum += of.of_rows[(at / channels * rows + row) * channels + at % channels];
    of.d_parameters[at] = static_cast<P>(sum);
  }

 private:
  // What a channel's steps are summed up to. Those that only a condition needs come last.
  enum { kGamma, kBeta, kShift, kScale, kChannelSums };

  // What is done to N channels from `c` on, of a row.
  template <class R, int N>
  struct Channels {
    R gamma[N], beta[N], scale[N], shift[N];

    template <class Tensors>
    VLA_HOST_DEVICE Channels(const GroupNormMish& norm, const Tensors& of, int64_t row, int64_t c) {
      const auto weights = load<N>(of.gamma + c), biases = load<N>(of.beta + c);
      for (int i = 0; i < N; ++i) {
        gamma[i] = static_cast<R>(weights.at[i]), beta[i] = static_cast<R>(biases.at[i]);
        scale[i] = 1, shift[i] = 0;
      }
      if (norm.scales) {
        const auto scales = load<N>(of.modulation + row * 2 * norm.channels + c);
        for (int i = 0; i < N; ++i) scale[i] = static_cast<R>(scales.at[i]);
      }
      if (norm.scales || norm.shifts) {
        const auto shifts = load<N>(of.modulation + norm.shift_at(row, c));
        for (int i = 0; i < N; ++i) shift[i] = static_cast<R>(shifts.at[i]);
      }
    }
  };

  template <class R>
  VLA_HOST_DEVICE R gate(R value, R& derivative) const {
    if (mish) return mish_gate(value, derivative);
    derivative = 1;
    return 1;
  }

  // What comes through the relu.
  template <int N, class T, class P>
  VLA_HOST_DEVICE Pack<T, N> arriving_gradient(const Backward<T, P>& of, int64_t at) const {
    auto gradient = load<N>(of.gradient + at);
    if (!relu) return gradient;
    const auto y = load<N>(of.y + at);
    for (int i = 0; i < N; ++i) gradient.at[i] = static_cast<T>(relu_gradient(static_cast<Real<T>>(y.at[i]), static_cast<Real<T>>(gradient.at[i])));
    return gradient;
  }

  VLA_HOST_DEVICE int64_t shift_at(int64_t row, int64_t c) const { return (scales ? row * 2 + 1 : row) * channels + c; }

  // f(channel, place of the pack in x) of each pack of the thread.
  template <class Team, class F>
  VLA_HOST_DEVICE void for_each_pack(int64_t row, int64_t group, const Team& team, const F& f) const {
    for (int64_t c = team.channel(); c < group_channels(); c += team.channels_at_once()) {
      const int64_t channel = group * group_channels() + c;
      for (int64_t t = team.step(); t < steps; t += team.steps_at_once()) f(channel, (row * steps + t) * channels + channel);
    }
  }

  template <class T, class P>
  VLA_HOST_DEVICE void store_sum(const Backward<T, P>& of, int64_t row, int64_t c, int kind, Real<T> value) const {
    switch (kind) {
      case kGamma: of.of_rows[row * channels + c] = value; break;
      case kBeta: of.of_rows[(rows + row) * channels + c] = value; break;
      case kShift: of.d_modulation[shift_at(row, c)] = static_cast<T>(value); break;
      case kScale: of.d_modulation[row * 2 * channels + c] = static_cast<T>(value); break;
    }
  }
};

// Null where there is none, or where forward or backward does not need it.
struct GroupNormMishTensors {
  const void *gradient = nullptr, *x = nullptr, *gamma = nullptr, *beta = nullptr, *modulation = nullptr, *residual = nullptr;
  void *y = nullptr, *mean = nullptr, *inverse_std = nullptr;
  void *dx = nullptr, *d_residual = nullptr, *d_modulation = nullptr, *of_rows = nullptr, *d_parameters = nullptr;

  // Whether packs can be read: of 16 bytes at most.
  bool are_packed() const {
    uintptr_t addresses = 0;
    for (const void* tensor : {gradient, x, gamma, beta, modulation, residual}) addresses |= reinterpret_cast<uintptr_t>(tensor);
    return addresses % 16 == 0;
  }

  template <class T, class P>
  GroupNormMish::Forward<T, P> forward() const {
    return {static_cast<const T*>(x), static_cast<const P*>(gamma), static_cast<const P*>(beta), static_cast<const T*>(modulation),
            static_cast<const T*>(residual), static_cast<T*>(y), static_cast<Real<T>*>(mean), static_cast<Real<T>*>(inverse_std)};
  }
  template <class T, class P>
  GroupNormMish::Backward<T, P> backward() const {
    return {static_cast<const T*>(gradient), static_cast<const T*>(x), static_cast<const T*>(y), static_cast<const P*>(gamma), static_cast<const P*>(beta),
            static_cast<const T*>(modulation), static_cast<const Real<T>*>(mean), static_cast<const Real<T>*>(inverse_std), static_cast<T*>(dx),
            static_cast<T*>(d_residual), static_cast<T*>(d_modulation), static_cast<Real<T>*>(of_rows), static_cast<P*>(d_parameters)};
  }
};

// `real_parameters`: gamma and beta are Real, else of `type`.
cudaError_t group_norm_mish_forward_cuda(const GroupNormMish& norm, const GroupNormMishTensors& tensors, CudaElement type,
                                         bool real_parameters, cudaStream_t stream);
cudaError_t group_norm_mish_backward_cuda(const GroupNormMish& norm, const GroupNormMishTensors& tensors, CudaElement type,
                                          bool real_parameters, cudaStream_t stream);

}  // namespace vla
