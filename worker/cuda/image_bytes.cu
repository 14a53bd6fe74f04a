#include "worker/cuda/image_bytes.hpp"

#include "worker/cuda/dispatch.cuh"

namespace vla {
namespace {

constexpr int kThreads = 256;

template <int N, class T>
__global__ void image_bytes_kernel(ImageBytes of, const uint8_t* bytes, T* output) {
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (first >= of.pixels * of.channels) return;
  const auto in = load<N>(bytes + first);
  Pack<T, N> out;
  int channel = static_cast<int>(first % of.channels);
  for (int i = 0; i < N; ++i) {
    out.at[i] = of.value<T>(in.at[i], channel);
    if (++channel == of.channels) channel = 0;
  }
  store<N>(output + first, out);
}

template <int N, class T>
void launch(const ImageBytes& of, const uint8_t* bytes, void* output, cudaStream_t stream) {
  const int64_t packs = of.pixels * of.channels / N;
  image_bytes_kernel<N><<<static_cast<unsigned>((packs + kThreads - 1) / kThreads), kThreads, 0, stream>>>(of, bytes, static_cast<T*>(output));
}

}  // namespace

cudaError_t image_bytes_cuda(const ImageBytes& of, const uint8_t* bytes, void* output, CudaElement type, cudaStream_t stream) {
  if (of.pixels * of.channels == 0) return cudaSuccess;
  return with_element(type, [&](auto element) {
    using T = decltype(element);
    constexpr int N = 8;
    if (of.pixels * of.channels % N == 0 && reinterpret_cast<uintptr_t>(bytes) % N == 0) {
      launch<N, T>(of, bytes, output, stream);
    } else {
      launch<1, T>(of, bytes, output, stream);
    }
  });
}

}  // namespace vla
