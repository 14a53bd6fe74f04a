#include "worker/policies/nn/fused_norm.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include "worker/cuda/norm_row.hpp"
#include "worker/policies/nn/device_kernel.hpp"
#include "worker/policies/nn/precision.hpp"

namespace vla {
namespace {

constexpr int kHostSteps = kWidestNorm / kChunk;

// Contiguous memory that can be read 16 bytes at a time in rows of a multiple of eight numbers.
bool has_chunked_rows(const at::Tensor& x) {
  return x.is_contiguous() && x.size(-1) % kChunk == 0 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

bool fits_norm_kernel(const at::Tensor& x, std::initializer_list<at::Tensor> others) {
  if (!has_chunked_rows(x) || x.size(-1) > kWidestNorm || x.numel() == 0 || (x.is_cuda() && x.scalar_type() == at::kDouble)) return false;
  return std::ranges::all_of(others, [&](const at::Tensor& other) {
    return !other.defined() || (other.scalar_type() == x.scalar_type() && other.device() == x.device() && has_chunked_rows(other));
  });
}

void run_forward(const NormForward& of, const at::Tensor& x) {
  run_kernel(
      x, [&](cudaStream_t stream) { return norm_forward_cuda(of, element_of(x), stream); },
      [&](auto element) { for_each(of.rows, [&](int64_t row) { norm_row_forward<kHostSteps, decltype(element)>(OneThread{}, of, row); }); });
}

// -> the weight's gradient, if it is wanted
at::Tensor run_backward(const NormBackward& of, const at::Tensor& weight, bool wants_weight) {
  at::Tensor grad_weight, partial;
  if (wants_weight) grad_weight = at::empty_like(weight);
  if (wants_weight && weight.is_cuda()) partial = at::empty({norm_partial_sums(of.rows), of.width}, weight.options().dtype(at::kFloat));
  run_kernel(
      weight, [&](cudaStream_t stream) { return norm_backward_cuda(of, out_ptr<float>(partial), out_ptr(grad_weight), element_of(weight), stream); },
      [&](auto element) {
        using T = decltype(element);
        std::vector<Real<T>> sums(static_cast<size_t>(of.width));
        for (int64_t row = 0; row < of.rows; ++row) {
          norm_row_backward<kHostSteps, T>(OneThread{}, of, row, [&](int, int chunk, int i, auto value) { sums[static_cast<size_t>(chunk * kChunk + i)] += value; });
        }
        if (wants_weight) std::ranges::transform(sums, out_ptr<T>(grad_weight), [](auto sum) { return static_cast<T>(sum); });
      });
  return grad_weight;
}

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  // Without `other` the sum is not among the results.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& other,
                                                const at::Tensor& weight, double eps) {
    const at::Tensor added = other.value_or(at::Tensor());
    const at::Tensor sum = added.defined() ? at::empty_like(x) : x, normalized = at::empty_like(x);
    run_forward({.x = x.const_data_ptr(), .added = in_ptr(added), .weight = weight.const_data_ptr(),
                 .sum = added.defined() ? sum.mutable_data_ptr() : nullptr, .normalized = normalized.mutable_data_ptr(),
                 .rows = x.numel() / x.size(-1), .width = x.size(-1), .eps = eps},
                x);
    context->save_for_backward({sum, weight});
    context->saved_data["eps"] = eps;
    context->set_materialize_grads(false);
    if (added.defined()) return {normalized, sum};
    return {normalized};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1];
    const at::Tensor grad_sum = gradients.size() > 1 && gradients[1].defined() ? gradients[1].contiguous() : at::Tensor();
    if (!gradients[0].defined()) return {grad_sum, gradients.size() > 1 ? grad_sum : at::Tensor(), {}, {}};
    const at::Tensor grad_normalized = gradients[0].contiguous(), grad = at::empty_like(sum);
    const at::Tensor grad_weight = run_backward({.sum = sum.const_data_ptr(), .weight = weight.const_data_ptr(), .grad_normalized = grad_normalized.const_data_ptr(),
                                                 .grad_sum = in_ptr(grad_sum), .grad = grad.mutable_data_ptr(), .rows = sum.numel() / sum.size(-1),
                                                 .width = sum.size(-1), .eps = context->saved_data["eps"].toDouble()},
                                                weight, weight.requires_grad());
    return {grad, gradients.size() > 1 ? grad : at::Tensor(), grad_weight, {}};
  }
};

}  // namespace

AddNorm add_rms_norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, double eps) {
  if (fits_norm_kernel(x, {added, weight})) {
    const auto results = AddRmsNorm::apply(x, if_defined(added), weight, eps);
    return {added.defined() ? results[1] : x, results[0]};
  }
  const at::Tensor sum = added.defined() ? x + added : x, wide = at_least_float(sum);
  return {sum, weight * (wide * (wide.square().mean(-1, /*keepdim=*/true) + eps).rsqrt()).to(sum.scalar_type())};
}

at::Tensor offset_layer_norm(const at::Tensor& x, const at::Tensor& offset, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (!fits_norm_kernel(x, {offset, weight, bias})) return std::get<0>(at::native_layer_norm(offset.defined() ? x + offset : x, {x.size(-1)}, weight, bias, eps));
  const at::Tensor normalized = at::empty_like(x);
  run_forward({.x = x.const_data_ptr(), .offset = in_ptr(offset), .weight = weight.const_data_ptr(), .bias = bias.const_data_ptr(),
               .normalized = normalized.mutable_data_ptr(), .rows = x.numel() / x.size(-1), .width = x.size(-1), .eps = eps, .centered = true},
              x);
  return normalized;
}

}  // namespace vla
