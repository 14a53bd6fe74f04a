#include "worker/cuda/norm_row.hpp"

#include "worker/cuda/dispatch.cuh"
#include "worker/cuda/team.cuh"

namespace vla {
namespace {

constexpr int kThreads = 128, kRowsOfBlock = kThreads / kWarp;
constexpr int kRowsOfPartial = 4, kMostPartials = 1056;  // eight warps on each of 132 multiprocessors

template <int kSteps, class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(NormForward of) {
  const int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  if (row < of.rows) norm_row_forward<kSteps, T>(Warp{}, of, row);
}

template <int kSteps, class T, bool kWeight>
__global__ void __launch_bounds__(kThreads) backward_kernel(NormBackward of, float* partial, int64_t partials) {
  const int64_t warp = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  if (warp >= partials) return;
  [[maybe_unused]] float weight[kSteps][kChunk] = {};
  for (int64_t row = warp; row < of.rows; row += partials) {
    norm_row_backward<kSteps, T>(Warp{}, of, row, [&](int step, int, int i, float value) {
      if constexpr (kWeight) weight[step][i] += value;
    });
  }
  if constexpr (kWeight) {
    for_each_chunk<kSteps>(Warp{}, of.width, [&](int step, int chunk) { store_chunk(weight[step], partial + warp * of.width + chunk * kChunk); });
  }
}

// A block sums 32 columns.
template <class T>
__global__ void sum_kernel(const float* partial, int64_t partials, int64_t width, T* result) {
  __shared__ float sums[kWarp][kWarp + 1];
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (column < width) {
    for (int64_t i = threadIdx.y; i < partials; i += kWarp) sum += partial[i * width + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  sum = 0;
  for (int i = 0; i < kWarp; ++i) sum += sums[i][threadIdx.x];
  result[column] = static_cast<T>(sum);
}

unsigned blocks_for(int64_t rows) { return static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock); }

template <int kSteps, class T>
void launch(const NormForward& of, cudaStream_t stream) {
  forward_kernel<kSteps, T><<<blocks_for(of.rows), kThreads, 0, stream>>>(of);
}

template <int kSteps, class T>
void launch(const NormBackward& of, float* partial, cudaStream_t stream) {
  if (partial != nullptr) {
    const int64_t partials = norm_partial_sums(of.rows);
    backward_kernel<kSteps, T, true><<<blocks_for(partials), kThreads, 0, stream>>>(of, partial, partials);
  } else {
    backward_kernel<kSteps, T, false><<<blocks_for(of.rows), kThreads, 0, stream>>>(of, nullptr, of.rows);
  }
}

template <class T, class... Arguments>
void launch_for_width(int64_t width, const Arguments&... arguments) {
  const int64_t steps = (width + kWarp * kChunk - 1) / (kWarp * kChunk);
  if (steps <= 1) return launch<1, T>(arguments...);
  if (steps <= 2) return launch<2, T>(arguments...);
  if (steps <= 3) return launch<3, T>(arguments...);
  if (steps <= 4) return launch<4, T>(arguments...);
  launch<8, T>(arguments...);
}

template <class T>
void backward(const NormBackward& of, float* partial, void* grad_weight, cudaStream_t stream) {
  launch_for_width<T>(of.width, of, partial, stream);
  if (partial == nullptr) return;
  const auto blocks = static_cast<unsigned>((of.width + kWarp - 1) / kWarp);
  sum_kernel<T><<<blocks, dim3(kWarp, kWarp), 0, stream>>>(partial, norm_partial_sums(of.rows), of.width, static_cast<T*>(grad_weight));
}

}  // namespace

int64_t norm_partial_sums(int64_t rows) {
  const int64_t wanted = (rows + kRowsOfPartial - 1) / kRowsOfPartial;
  return wanted < kMostPartials ? wanted : kMostPartials;
}

cudaError_t norm_forward_cuda(const NormForward& of, CudaElement type, cudaStream_t stream) {
  if (of.rows == 0) return cudaSuccess;
  return with_narrow_element(type, [&](auto element) { launch_for_width<decltype(element)>(of.width, of, stream); });
}

cudaError_t norm_backward_cuda(const NormBackward& of, float* partial, void* grad_weight, CudaElement type, cudaStream_t stream) {
  if (of.rows == 0) return cudaErrorInvalidValue;
  return with_narrow_element(type, [&](auto element) { backward<decltype(element)>(of, partial, grad_weight, stream); });
}

}  // namespace vla
