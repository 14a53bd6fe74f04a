#include "worker/flops.hpp"

#include <atomic>
#include <map>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include "common/scope_exit.hpp"

namespace vla {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;

std::atomic<int64_t> counted_flops = 0;
thread_local int depth = 0;  // of counted operations: one that casts its arguments and calls itself counts once

bool is_matrix(const c10::IValue& value, int64_t least_dim = 2) { return value.isTensor() && value.toTensor().defined() && value.toTensor().dim() >= least_dim; }

// 2 * [.., m, k] x [.., k, n]; the first factor is input `first`.
template <size_t first>
int64_t product(Inputs inputs) {
  if (inputs.size() < first + 2 || !is_matrix(inputs[first]) || !is_matrix(inputs[first + 1])) return 0;
  return 2 * inputs[first].toTensor().numel() * inputs[first + 1].toTensor().size(-1);
}

// Every element of the output (transposed: of the input) meets one filter.
int64_t convolution(const at::Tensor& input, const at::Tensor& weight, const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                    const std::vector<int64_t>& dilation, bool transposed) {
  int64_t positions = input.size(0);
  for (int64_t i = 2; i < weight.dim(); ++i) {
    const auto of = [i](const std::vector<int64_t>& list) { return list.size() == 1 ? list[0] : list.at(static_cast<size_t>(i - 2)); };
    positions *= transposed ? input.size(i) : (input.size(i) + 2 * of(padding) - of(dilation) * (weight.size(i) - 1) - 1) / of(stride) + 1;
  }
  return 2 * positions * weight.numel();
}

// aten::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
int64_t convolution_forward(Inputs inputs) {
  if (inputs.size() < 9 || !is_matrix(inputs[0], 3) || inputs[0].toTensor().dim() != inputs[1].toTensor().dim()) return 0;
  return convolution(inputs[0].toTensor(), inputs[1].toTensor(), inputs[3].toIntVector(), inputs[4].toIntVector(), inputs[5].toIntVector(),
                     inputs[6].toBool());
}

// aten::convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
// output_mask): as much as forward for the input's gradient, and again for the weight's.
int64_t convolution_backward(Inputs inputs) {
  if (inputs.size() < 11 || !is_matrix(inputs[1], 3)) return 0;
  const auto mask = inputs[10].toBoolList();
  return (mask[0] + mask[1]) * convolution(inputs[1].toTensor(), inputs[2].toTensor(), inputs[4].toIntVector(), inputs[5].toIntVector(),
                                           inputs[6].toIntVector(), inputs[7].toBool());
}

// Queries [.., L, D], keys [.., S, D], values [.., S, Dv] from input `first` on: two products, in a backward pass four.
template <size_t first, int64_t products>
int64_t attention(Inputs inputs) {
  if (inputs.size() < first + 3 || !is_matrix(inputs[first]) || !is_matrix(inputs[first + 1]) || !is_matrix(inputs[first + 2])) return 0;
  const at::Tensor &query = inputs[first].toTensor(), &value = inputs[first + 2].toTensor();
  return products * query.numel() / query.size(-1) * value.size(-2) * (query.size(-1) + value.size(-1));
}

using Formula = int64_t (*)(Inputs inputs);
const std::map<std::string_view, Formula>& formulas() {
  static const std::map<std::string_view, Formula> kFormulas = {
      {"aten::mm", product<0>},
      {"aten::bmm", product<0>},
      {"aten::addmm", product<1>},
      {"aten::baddbmm", product<1>},
      {"aten::addmm_", product<1>},
      {"aten::baddbmm_", product<1>},
      {"aten::_addmm_activation", product<1>},
      {"aten::convolution", convolution_forward},
      {"aten::convolution_backward", convolution_backward},
      {"aten::scaled_dot_product_attention", attention<0, 2>},
      {"aten::_scaled_dot_product_flash_attention_backward", attention<1, 4>},
      {"aten::_scaled_dot_product_efficient_attention_backward", attention<1, 4>},
      {"aten::_scaled_dot_product_cudnn_attention_backward", attention<1, 4>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention<1, 4>},
  };
  return kFormulas;
}

struct Counted : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const auto formula = formulas().find(function.name());
  if (formula == formulas().end()) return nullptr;
  if (depth++ == 0) counted_flops += formula->second(function.inputs());
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
  counted_flops = 0;
  auto callback = at::RecordFunctionCallback(begin, end).needsInputs(true).scopes({at::RecordScope::FUNCTION});
  const auto handle = at::addThreadLocalCallback(std::move(callback));
  const cxxrun::ScopeExit remove([handle] { at::removeCallback(handle); });
  work();
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
