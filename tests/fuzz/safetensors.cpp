// Weights: any bytes are whole tensors, or an Error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "common/error.hpp"
#include "worker/checkpoint/safetensors_header.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = ::memfd_create("fuzz.safetensors", MFD_CLOEXEC);
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const vla::SafetensorsFile weights("/proc/self/fd/" + std::to_string(file));
    size_t bytes = 8;
    for (const vla::SafetensorsEntry& entry : weights.entries()) {
      std::vector<char> values(static_cast<size_t>(entry.end - entry.begin));
      weights.read(entry, values.data());
      bytes += values.size();
    }
    if (bytes > size) std::abort();  // tensors overlap
  } catch (const cxxrun::Error&) {
  }
  return 0;
}
