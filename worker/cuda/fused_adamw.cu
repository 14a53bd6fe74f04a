#include <cuda_bf16.h>

#include <type_traits>

#include "worker/cuda/fused_adamw.hpp"
#include "worker/cuda/team.cuh"

namespace vla {
namespace {

constexpr int kThreads = 256;
constexpr int kFinishThreads = 1024;

template <UpdateTypes types>
using Lanes = std::integral_constant<int, update_lanes(types)>;

// f(element of parameter and gradient, of master and moments, elements at once).
template <class F>
__device__ void with_types(UpdateTypes types, const F& f) {
  switch (types) {
    case UpdateTypes::kFloat32: f(float{}, float{}, Lanes<UpdateTypes::kFloat32>{}); break;
    case UpdateTypes::kBFloat16WithFloat32State: f(__nv_bfloat16{}, float{}, Lanes<UpdateTypes::kBFloat16WithFloat32State>{}); break;
    case UpdateTypes::kBFloat16: f(__nv_bfloat16{}, __nv_bfloat16{}, Lanes<UpdateTypes::kBFloat16>{}); break;
  }
}

template <class T, int kLanes>
__device__ float squares(const UpdateRow& row, int64_t first, int64_t end) {
  const T* gradient = static_cast<const T*>(row.gradient);
  float sum = 0;
  if (row.is_aligned && first % kLanes == 0) {
    for (int64_t i = first + threadIdx.x * int64_t{kLanes}; i + kLanes <= end; i += int64_t{kThreads} * kLanes) {
      const auto lanes = load<kLanes>(gradient + i);
      for (int lane = 0; lane < kLanes; ++lane) {
        const float x = static_cast<float>(lanes.at[lane]);
        sum += x * x;
      }
    }
    first += (end - first) / kLanes * kLanes;
  }
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    const float x = static_cast<float>(gradient[i]);
    sum += x * x;
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads) norm_kernel(UpdateTableView table, float* partial) {
  const UpdateChunk chunk = table.chunks[blockIdx.x];
  const UpdateRow& row = table.rows[chunk.row];
  float sum = 0;
  if (row.gradient != nullptr && chunk.in_norm) {
    with_types(row.types, [&](auto element, auto, auto lanes) { sum = squares<decltype(element), lanes.value>(row, chunk.first, chunk.end); });
  }
  sum = Block<kThreads>{}.sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// `result` takes the sum, in one thread.
template <class Result>
__global__ void __launch_bounds__(kFinishThreads) sum_kernel(const float* partial, int64_t count, Result result) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kFinishThreads) sum += static_cast<double>(partial[i]);
  sum = Block<kFinishThreads>{}.sum(sum);
  if (threadIdx.x == 0) result(sum);
}

struct StoreSum {
  double* to;
  __device__ void operator()(double sum) const { *to = sum; }
};

struct StoreNorm {
  float limit;
  float *norm, *factor;
  __device__ void operator()(double sum) const {
    *norm = static_cast<float>(sqrt(sum));
    *factor = limit > 0 ? clip_factor_of(*norm, limit) : 1;
  }
};

__global__ void norm_of_kernel(const double* sum, StoreNorm store) { store(*sum); }

template <class Result>
cudaError_t add_up(const UpdateTableView& table, float* partial, const Result& result, cudaStream_t stream) {
  if (table.chunk_count > 0) norm_kernel<<<static_cast<unsigned>(table.chunk_count), kThreads, 0, stream>>>(table, partial);
  sum_kernel<<<1, kFinishThreads, 0, stream>>>(partial, table.chunk_count, result);
  return cudaGetLastError();
}

__global__ void __launch_bounds__(kFinishThreads) begin_kernel(UpdateTableView table, const float* norm, const float* found_inf, float* skip, float* skipped) {
  const bool skips = (norm != nullptr && !is_finite(*norm)) || (found_inf != nullptr && *found_inf != 0);
  if (threadIdx.x == 0) {
    *skip = skips ? 1 : 0;
    *skipped += *skip;
  }
  if (skips) return;
  for (int64_t i = threadIdx.x; i < table.row_count; i += kFinishThreads) {
    if (table.rows[i].gradient != nullptr) *table.rows[i].step += 1;
  }
}

template <class T, class S, int kLanes>
__device__ void update_chunk(const UpdateRule& rule, const UpdateRow& row, const UpdateFactors& factors, int64_t first, int64_t end) {
  if (row.is_aligned && first % kLanes == 0) {
    for (int64_t i = first + threadIdx.x * int64_t{kLanes}; i + kLanes <= end; i += int64_t{kThreads} * kLanes) {
      update_elements<T, S, kLanes>(rule, row, factors, i);
    }
    first += (end - first) / kLanes * kLanes;
  }
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) update_elements<T, S, 1>(rule, row, factors, i);
}

__global__ void __launch_bounds__(kThreads) update_kernel(UpdateTableView table, UpdateRule rule) {
  const UpdateChunk chunk = table.chunks[blockIdx.x];
  const UpdateRow row = table.rows[chunk.row];
  __shared__ UpdateFactors factors;
  if (threadIdx.x == 0) factors = update_factors(rule, row);
  __syncthreads();
  const UpdateFactors f = factors;
  with_types(row.types, [&](auto element, auto state, auto lanes) {
    update_chunk<decltype(element), decltype(state), lanes.value>(rule, row, f, chunk.first, chunk.end);
  });
}

}  // namespace

cudaError_t gradient_norm_cuda(const UpdateTableView& table, float limit, float* partial, float* norm, float* factor, cudaStream_t stream) {
  return add_up(table, partial, StoreNorm{limit, norm, factor}, stream);
}

cudaError_t sum_of_squares_cuda(const UpdateTableView& table, float* partial, double* sum, cudaStream_t stream) {
  return add_up(table, partial, StoreSum{sum}, stream);
}

cudaError_t norm_of_cuda(const double* sum, float limit, float* norm, float* factor, cudaStream_t stream) {
  norm_of_kernel<<<1, 1, 0, stream>>>(sum, {limit, norm, factor});
  return cudaGetLastError();
}

cudaError_t begin_update_cuda(const UpdateTableView& table, const float* norm, const float* found_inf, float* skip, float* skipped,
                              cudaStream_t stream) {
  begin_kernel<<<1, kFinishThreads, 0, stream>>>(table, norm, found_inf, skip, skipped);
  return cudaGetLastError();
}

cudaError_t update_cuda(const UpdateTableView& table, const UpdateRule& rule, cudaStream_t stream) {
  if (table.chunk_count == 0) return cudaSuccess;
  update_kernel<<<static_cast<unsigned>(table.chunk_count), kThreads, 0, stream>>>(table, rule);
  return cudaGetLastError();
}

}  // namespace vla
