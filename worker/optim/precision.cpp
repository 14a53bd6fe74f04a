#include "worker/optim/precision.hpp"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <cuda_runtime_api.h>

#include "common/error.hpp"
#include "worker/optim/options.hpp"

namespace vla {

using cxxrun::UsageError;

Precision make_precision(const std::string& name, at::ScalarType parameters, at::Device device) {
  const std::string precision = parse_precision(name);
  if (parameters != at::kFloat && precision != "fp32") {
    throw UsageError("training.precision={} needs training.dtype=float32, not {}", precision,
                     c10::toString(parameters));
  }
  if (precision.starts_with("bf16") && device.is_cuda()) {
    const cudaDeviceProp& gpu = *at::cuda::getDeviceProperties(device.index());
    if (gpu.major < 8) {
      throw UsageError(
          "training.precision={}: {} (compute capability {}.{}) does not compute in bfloat16, which takes 8.0; "
          "use fp16-mixed or fp32",
          precision, gpu.name, gpu.major, gpu.minor);
    }
  }
  if (precision == "fp32") return {.parameters = parameters};
  if (precision == "tf32") return {.tf32 = true};
  // With these, what is left in float32 may use TF32: it is the more precise of the two.
  if (precision == "bf16-mixed") return {.autocast = at::kBFloat16, .tf32 = true};
  if (precision == "fp16-mixed") return {.autocast = at::kHalf, .tf32 = true, .needs_scaler = true};
  return {.parameters = at::kBFloat16, .tf32 = true};
}

void apply_tf32(const Precision& precision) {
  at::globalContext().setAllowTF32CuBLAS(precision.tf32);
  at::globalContext().setAllowTF32CuDNN(precision.tf32);
}

AutocastGuard::AutocastGuard(const Precision& precision, at::Device device) {
  if (!precision.autocast) return;
  device_ = device.type();
  was_enabled_ = at::autocast::is_autocast_enabled(*device_);
  previous_ = at::autocast::get_autocast_dtype(*device_);
  at::autocast::set_autocast_enabled(*device_, true);
  at::autocast::set_autocast_dtype(*device_, *precision.autocast);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (!device_) return;
  // The cast weights are stale after the next update.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(*device_, was_enabled_);
  at::autocast::set_autocast_dtype(*device_, previous_);
}

}  // namespace vla
