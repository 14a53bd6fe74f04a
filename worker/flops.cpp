#include "worker/flops.hpp"

#include <ATen/record_function.h>
#include <torch/csrc/profiler/util.h>

namespace vla {
namespace {

thread_local int64_t counted_flops = 0;
thread_local int depth = 0;  // of counted operations: one that casts its arguments and calls itself counts once

struct Counted : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const std::string name = function.name();
  if (name == "aten::add" || name == "aten::mul") return nullptr;  // element-wise
  const auto flops = torch::profiler::impl::computeFlops(name, torch::profiler::impl::saveExtraArgs(function));
  if (flops == 0) return nullptr;
  if (depth++ == 0) counted_flops += static_cast<int64_t>(flops);
  return std::make_unique<Counted>();
}

void end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context) --depth;
}

// Dense, without sparsity: NVIDIA's data sheets of A100, H100 SXM, H100 PCIe and L40S (H200 computes as H100 SXM does).
struct Peak {
  const char* gpu;
  double fp32, tf32, half;
};
constexpr Peak kPeaks[] = {
    {"H100 PCIe", 51e12, 378e12, 756e12}, {"H100 NVL", 60e12, 418e12, 835e12}, {"H100", 67e12, 494e12, 989e12},
    {"H200", 67e12, 494e12, 989e12},      {"A100", 19.5e12, 156e12, 312e12},   {"L40S", 91.6e12, 183e12, 362e12},
};

}  // namespace

int64_t count_flops(const std::function<void()>& work) {
  counted_flops = depth = 0;
  auto callback = at::RecordFunctionCallback(begin, end).needsInputs(true).scopes({at::RecordScope::FUNCTION});
  const auto handle = at::addThreadLocalCallback(std::move(callback));
  work();
  at::removeCallback(handle);
  return counted_flops;
}

std::optional<double> peak_flops(std::string_view gpu, std::string_view precision) {
  for (const Peak& peak : kPeaks) {
    if (gpu.find(peak.gpu) == std::string_view::npos) continue;
    if (precision == "fp32") return peak.fp32;
    return precision == "tf32" ? peak.tf32 : peak.half;
  }
  return std::nullopt;
}

}  // namespace vla
