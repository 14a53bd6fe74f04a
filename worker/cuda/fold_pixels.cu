#include "worker/cuda/fold_pixels.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

constexpr int kFoldThreads = 256;
constexpr int64_t kMostImages = 65535;  // of a grid's third dimension

template <class T>
__global__ void fold_kernel(FoldPixels of, const T* in, T* out) {
  const unsigned place = blockIdx.x * kFoldThreads + threadIdx.x;
  if (place / 4 >= of.folded_width()) return;
  for (int64_t image = blockIdx.z; image < of.images; image += gridDim.z) of.fold(in, out, image, blockIdx.y, place / 4, static_cast<int>(place % 4));
}

}  // namespace

cudaError_t fold_pixels_cuda(const FoldPixels& of, const void* in, void* out, CudaElement type, cudaStream_t stream) {
  if (of.images == 0) return cudaSuccess;
  const dim3 blocks(static_cast<unsigned>((of.folded_width() * 4 + kFoldThreads - 1) / kFoldThreads), static_cast<unsigned>(of.folded_height()),
                    static_cast<unsigned>(std::min(of.images, kMostImages)));
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    fold_kernel<T><<<blocks, kFoldThreads, 0, stream>>>(of, static_cast<const T*>(in), static_cast<T*>(out));
  });
}

}  // namespace vla
