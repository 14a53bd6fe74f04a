#include "worker/cuda/resize_pixel.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostImages = 65535;  // of a grid's second dimension

template <class T, int N>
__global__ void __launch_bounds__(kThreads) resize_kernel(ResizePixels of) {
  const int64_t place = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (place >= of.plane_size()) return;
  for (int64_t image = blockIdx.y; image < of.images; image += gridDim.y) resize_pixels<T, N>(of, image, static_cast<int>(place));
}

}  // namespace

cudaError_t resize_pixels_cuda(const ResizePixels& of, CudaElement type, cudaStream_t stream) {
  if (of.images * of.channels * of.plane_size() == 0) return cudaSuccess;
  return with_packs(type, of.out_width, [&](auto element, auto pack) {
    const int64_t of_block = kThreads * int64_t{pack.value};
    const dim3 blocks(static_cast<unsigned>((of.plane_size() + of_block - 1) / of_block), static_cast<unsigned>(std::min(of.images, kMostImages)));
    resize_kernel<decltype(element), pack.value><<<blocks, kThreads, 0, stream>>>(of);
  });
}

}  // namespace vla
