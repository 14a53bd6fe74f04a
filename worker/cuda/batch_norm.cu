#include "worker/cuda/batch_norm.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

constexpr int kMostThreads = 256;

// Adds two packs up over threadIdx.y, in a fixed order, and writes the block's part.
template <int N, class R>
__device__ void write_part(const Pack<R, N>& a, const Pack<R, N>& b, R* partial, int64_t channel, int64_t channels) {
  __shared__ Pack<R, N> shared[2][kMostThreads];
  const unsigned own = threadIdx.y * blockDim.x + threadIdx.x;
  shared[0][own] = a;
  shared[1][own] = b;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  for (int k = 0; k < 2; ++k) {
    Pack<R, N> sum = shared[k][threadIdx.x];
    for (unsigned row = 1; row < blockDim.y; ++row) {
      for (int i = 0; i < N; ++i) sum.at[i] += shared[k][row * blockDim.x + threadIdx.x].at[i];
    }
    store<N>(partial + (int64_t{blockIdx.x} * 2 + k) * channels + channel, sum);
  }
}

template <int N, class T>
__global__ void moments_kernel(BatchNorm norm, const T* x, Real<T>* partial) {
  const int64_t channel = RowGrid::channel<N>();
  Pack<Real<T>, N> sum = {}, squares = {};
  if (channel < norm.channels) {
    norm.moments<N>(x, sum, squares, channel, RowGrid::first_row(), RowGrid::rows_at_once());
  }
  write_part<N>(sum, squares, partial, channel, norm.channels);
}

template <int N, class T>
__global__ void gradient_sums_kernel(BatchNorm norm, const T* gradient, const T* x, const T* y, const Real<T>* mean, const Real<T>* inverse_std,
                                     Real<T>* partial) {
  const int64_t channel = RowGrid::channel<N>();
  Pack<Real<T>, N> sum = {}, products = {};
  if (channel < norm.channels) {
    norm.gradient_sums<N>(gradient, x, y, mean, inverse_std, sum, products, channel, RowGrid::first_row(), RowGrid::rows_at_once());
  }
  write_part<N>(sum, products, partial, channel, norm.channels);
}

template <int N, class T>
__global__ void norm_backward_kernel(BatchNorm norm, const T* gradient, const T* x, const T* y, const Real<T>* mean, const Real<T>* inverse_std,
                                     const Real<T>* scale, const double* sums, const double* count, T* dx, T* d_residual) {
  const int64_t channel = RowGrid::channel<N>();
  if (channel >= norm.channels) return;
  norm.backward<N>(gradient, x, y, mean, inverse_std, scale, sums, *count, dx, d_residual, channel,
                   RowGrid::first_row(), RowGrid::rows_at_once());
}

constexpr unsigned kChannels = 32, kRows = 8;  // of a block that adds parts up

struct Totals {
  double first, second, count;
};

// Of a channel over all parts; the count over all images. Valid for threadIdx.y 0.
template <class R>
__device__ Totals add_parts(const BatchNorm& norm, const R* partial, int64_t parts, int64_t channel) {
  __shared__ double shared[3][kRows][kChannels];
  Totals own = {0, 0, 0};
  if (channel < norm.channels) {
    for (int64_t part = threadIdx.y; part < parts; part += kRows) {
      own.first += partial[part * 2 * norm.channels + channel];
      own.second += partial[(part * 2 + 1) * norm.channels + channel];
    }
    for (int64_t image = threadIdx.y; image < norm.images; image += kRows) own.count += norm.image_weight(image);
  }
  shared[0][threadIdx.y][threadIdx.x] = own.first;
  shared[1][threadIdx.y][threadIdx.x] = own.second;
  shared[2][threadIdx.y][threadIdx.x] = own.count;
  __syncthreads();
  Totals all = {0, 0, 0};
  for (unsigned row = 0; row < kRows; ++row) {
    all.first += shared[0][row][threadIdx.x];
    all.second += shared[1][row][threadIdx.x];
    all.count += shared[2][row][threadIdx.x];
  }
  all.count *= static_cast<double>(norm.pixels_per_image);
  return all;
}

template <class T>
__global__ void finish_moments_kernel(BatchNorm norm, const T* x, const Real<T>* partial, int64_t parts, double* sums) {
  const int64_t channel = int64_t{blockIdx.x} * kChannels + threadIdx.x;
  const Totals all = add_parts(norm, partial, parts, channel);
  if (threadIdx.y == 0 && channel < norm.channels) norm.finish_moments(x, channel, all.first, all.second, all.count, sums);
}

template <class R, class P>
__global__ void finish_gradient_sums_kernel(BatchNorm norm, const R* partial, int64_t parts, double* sums, P* d_beta, P* d_gamma) {
  const int64_t channel = int64_t{blockIdx.x} * kChannels + threadIdx.x;
  const Totals all = add_parts(norm, partial, parts, channel);
  if (threadIdx.y != 0 || channel >= norm.channels) return;
  sums[channel] = all.first;
  sums[norm.channels + channel] = all.second;
  d_beta[channel] = static_cast<P>(static_cast<Real<P>>(all.first));
  d_gamma[channel] = static_cast<P>(static_cast<Real<P>>(all.second));
}

template <class P>
__global__ void constants_kernel(BatchNormConstants constants) {
  const int64_t channel = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (channel < constants.channels) constants.finish<P>(channel);
}

unsigned finishing_blocks(const BatchNorm& norm) { return static_cast<unsigned>((norm.channels + kChannels - 1) / kChannels); }

}  // namespace

cudaError_t batch_norm_moments_cuda(const BatchNorm& norm, const void* x, void* partial, double* sums, CudaElement type, cudaStream_t stream) {
  return with_packs(type, norm.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int N = decltype(pack)::value;
    auto* parts = static_cast<Real<T>*>(partial);
    const RowGrid grid(norm.pixels(), norm.channels / N, kBatchNormBlocks);
    moments_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(norm, static_cast<const T*>(x), parts);
    finish_moments_kernel<T><<<finishing_blocks(norm), dim3(kChannels, kRows), 0, stream>>>(norm, static_cast<const T*>(x), parts,
                                                                                         grid.blocks.x, sums);
  });
}

cudaError_t batch_norm_gradient_sums_cuda(const BatchNorm& norm, const void* gradient, const void* x, const void* y, const void* mean,
                                          const void* inverse_std, void* partial, double* sums, void* d_beta, void* d_gamma, CudaElement type,
                                          CudaElement parameter_type, cudaStream_t stream) {
  return with_packs(type, norm.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int N = decltype(pack)::value;
    using R = Real<T>;
    auto* parts = static_cast<R*>(partial);
    const RowGrid grid(norm.pixels(), norm.channels / N, kBatchNormBlocks);
    gradient_sums_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(norm, static_cast<const T*>(gradient), static_cast<const T*>(x),
                                                                         static_cast<const T*>(y), static_cast<const R*>(mean),
                                                                         static_cast<const R*>(inverse_std), parts);
    with_element(parameter_type, [&](auto parameter) {
      using P = decltype(parameter);
      finish_gradient_sums_kernel<<<finishing_blocks(norm), dim3(kChannels, kRows), 0, stream>>>(norm, parts, grid.blocks.x, sums,
                                                                                              static_cast<P*>(d_beta), static_cast<P*>(d_gamma));
    });
  });
}

cudaError_t batch_norm_backward_cuda(const BatchNorm& norm, const void* gradient, const void* x, const void* y, const void* mean,
                                     const void* inverse_std, const void* scale, const double* sums, const double* count, void* dx,
                                     void* d_residual, CudaElement type, cudaStream_t stream) {
  return with_packs(type, norm.channels, [&](auto element, auto pack) {
    using T = decltype(element);
    constexpr int N = decltype(pack)::value;
    using R = Real<T>;
    const RowGrid grid(norm.pixels(), norm.channels / N, kManyBlocks);
    norm_backward_kernel<N, T><<<grid.blocks, grid.threads, 0, stream>>>(
        norm, static_cast<const T*>(gradient), static_cast<const T*>(x), static_cast<const T*>(y), static_cast<const R*>(mean),
        static_cast<const R*>(inverse_std), static_cast<const R*>(scale), sums, count, static_cast<T*>(dx), static_cast<T*>(d_residual));
  });
}

cudaError_t batch_norm_constants_cuda(const BatchNormConstants& constants, CudaElement parameter_type, cudaStream_t stream) {
  return with_element(parameter_type, [&](auto parameter) {
    constexpr unsigned kThreads = 64;
    constants_kernel<decltype(parameter)><<<static_cast<unsigned>((constants.channels + kThreads - 1) / kThreads), kThreads, 0, stream>>>(constants);
  });
}

}  // namespace vla
