#include "worker/cuda/group_norm_mish.hpp"

#include "worker/cuda/dispatch.cuh"
#include "worker/cuda/team.cuh"

namespace vla {
namespace {

constexpr int kMostThreads = 512;

// The threads of a block, whole warps: packs of channels side by side, then steps. Those beyond the last step have none.
template <int N>
struct GroupBlock : Block<kMostThreads> {
  static constexpr int kPack = N;
  int packs, step_lanes;

  __device__ int64_t channel() const { return static_cast<int>(threadIdx.x) % packs * N; }
  __device__ int64_t channels_at_once() const { return packs * N; }
  __device__ int64_t step() const { return own_step() < step_lanes ? own_step() : INT64_MAX; }
  __device__ int64_t steps_at_once() const { return step_lanes; }

  template <class R, int M, class F>
  __device__ void sum_steps(const R (&sums)[M][N], int kinds, int64_t width, const F& f) const {
    __shared__ Pack<R, N> of_thread[M][kMostThreads];
    for (int kind = 0; kind < M; ++kind) {
      for (int i = 0; i < N; ++i) of_thread[kind][threadIdx.x].at[i] = sums[kind][i];
    }
    __syncthreads();
    const int side = packs * N;
    for (int i = static_cast<int>(threadIdx.x); i < kinds * side; i += static_cast<int>(blockDim.x)) {
      const int kind = i / side, channel = i % side;
      if (channel >= width) continue;
      R all = 0;
      for (int step = 0; step < step_lanes; ++step) all += of_thread[kind][step * packs + channel / N].at[channel % N];
      f(kind, channel, all);
    }
    __syncthreads();
  }

 private:
  __device__ int own_step() const { return static_cast<int>(threadIdx.x) / packs; }
};

template <class T, class P, int N>
__global__ void __launch_bounds__(kMostThreads) forward_kernel(GroupNormMish norm, GroupNormMish::Forward<T, P> of, GroupBlock<N> block) {
  norm.forward(of, blockIdx.x / norm.groups, blockIdx.x % norm.groups, block);
}

template <class T, class P, int N>
__global__ void __launch_bounds__(kMostThreads, 2) backward_kernel(GroupNormMish norm, GroupNormMish::Backward<T, P> of, GroupBlock<N> block) {
  norm.backward(of, blockIdx.x / norm.groups, blockIdx.x % norm.groups, block);
}

template <class T, class P>
__global__ void sum_rows_kernel(GroupNormMish norm, GroupNormMish::Backward<T, P> of) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < 2 * norm.channels) norm.sum_rows(of, at);
}

// f(element of x, element of the parameters).
template <class F>
cudaError_t with_elements(CudaElement type, bool real_parameters, const F& f) {
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    if (real_parameters) {
      f(T{}, Real<T>{});
    } else {
      f(T{}, T{});
    }
  });
}

// f(block, blocks, threads) with packs as wide as channels and addresses allow. More than four numbers would leave threads without work:
// the U-Net's groups have a thousand.
template <class T, class F>
void with_block(const GroupNormMish& norm, const GroupNormMishTensors& tensors, const F& f) {
  const auto with_pack = [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    const int64_t packs = std::min<int64_t>((norm.group_channels() + N - 1) / N, kMostThreads), steps = std::min(norm.steps, kMostThreads / packs);
    const int64_t threads = (packs * steps + kWarp - 1) / kWarp * kWarp;
    f(GroupBlock<N>{{}, static_cast<int>(packs), static_cast<int>(steps)}, static_cast<unsigned>(norm.rows * norm.groups), static_cast<unsigned>(threads));
  };
  constexpr int kWide = static_cast<int>(std::min<size_t>(4, 16 / sizeof(T)));
  if (norm.group_channels() % kWide == 0 && tensors.are_packed()) {
    with_pack(std::integral_constant<int, kWide>{});
  } else {
    with_pack(std::integral_constant<int, 1>{});
  }
}

}  // namespace

cudaError_t group_norm_mish_forward_cuda(const GroupNormMish& norm, const GroupNormMishTensors& tensors, CudaElement type,
                                         bool real_parameters, cudaStream_t stream) {
  if (norm.rows * norm.steps * norm.channels == 0) return cudaSuccess;
  return with_elements(type, real_parameters, [&](auto element, auto parameter) {
    using T = decltype(element);
    using P = decltype(parameter);
    with_block<T>(norm, tensors, [&](auto block, unsigned blocks, unsigned threads) {
      forward_kernel<T, P, decltype(block)::kPack><<<blocks, threads, 0, stream>>>(norm, tensors.forward<T, P>(), block);
    });
  });
}

cudaError_t group_norm_mish_backward_cuda(const GroupNormMish& norm, const GroupNormMishTensors& tensors, CudaElement type,
                                          bool real_parameters, cudaStream_t stream) {
  if (norm.rows * norm.steps * norm.channels == 0) return cudaSuccess;
  return with_elements(type, real_parameters, [&](auto element, auto parameter) {
    using T = decltype(element);
    using P = decltype(parameter);
    const auto of = tensors.backward<T, P>();
    with_block<T>(norm, tensors, [&](auto block, unsigned blocks, unsigned threads) {
      backward_kernel<T, P, decltype(block)::kPack><<<blocks, threads, 0, stream>>>(norm, of, block);
    });
    constexpr unsigned kThreads = 128;
    sum_rows_kernel<T, P><<<static_cast<unsigned>((2 * norm.channels + kThreads - 1) / kThreads), kThreads, 0, stream>>>(norm, of);
  });
}

}  // namespace vla
