#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/cuda/resize_pixel.hpp"

namespace vla {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostPlanes = 65535;  // of a grid's second dimension

template <class T>
__global__ void resize_kernel(ResizePixels of) {
  const int place = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (place >= of.plane_size()) return;
  for (int64_t plane = blockIdx.y; plane < of.planes(); plane += gridDim.y) resize_pixel<T>(of, plane, place);
}

}  // namespace

cudaError_t resize_pixels_cuda(const ResizePixels& of, CudaElement type, cudaStream_t stream) {
  if (of.planes() * of.plane_size() == 0) return cudaSuccess;
  const dim3 blocks(static_cast<unsigned>((of.plane_size() + kThreads - 1) / kThreads), static_cast<unsigned>(of.planes() < kMostPlanes ? of.planes() : kMostPlanes));
  switch (type) {
    case CudaElement::kFloat64: resize_kernel<double><<<blocks, kThreads, 0, stream>>>(of); break;
    case CudaElement::kFloat32: resize_kernel<float><<<blocks, kThreads, 0, stream>>>(of); break;
    case CudaElement::kBFloat16: resize_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(of); break;
    case CudaElement::kFloat16: resize_kernel<__half><<<blocks, kThreads, 0, stream>>>(of); break;
  }
  return cudaGetLastError();
}

}  // namespace vla
