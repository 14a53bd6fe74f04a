#include "worker/cuda/resize_pixel.hpp"

#include "worker/cuda/dispatch.cuh"

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
  return with_element(type, [&](auto element) { resize_kernel<decltype(element)><<<blocks, kThreads, 0, stream>>>(of); });
}

}  // namespace vla
