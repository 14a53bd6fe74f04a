#include "worker/policies/nn/silu_mul.hpp"

#include <torch/torch.h>

#include "worker/cuda/head_math.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

// Matrices whose rows of chunks may stand apart.
bool fits_silu_kernel(const at::Tensor& gate, const at::Tensor& up) {
  const auto fits = [](const at::Tensor& x) {
    return x.dim() == 2 && x.stride(1) == 1 && x.size(1) % kChunk == 0 && x.stride(0) % kChunk == 0 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  };
  return fits(gate) && fits(up) && gate.stride(0) == up.stride(0) && gate.scalar_type() == up.scalar_type() && gate.sizes() == up.sizes() &&
         !(gate.is_cuda() && gate.scalar_type() == at::kDouble);
}

void run_silu(const SiluMul& of, const at::Tensor& gate) {
  run_kernel(
      gate, [&](cudaStream_t stream) { return silu_mul_cuda(of, element_of(gate), stream); },
      [&](auto element) { for_each(of.chunks(), [&](int64_t chunk) { silu_mul_chunk<decltype(element)>(of, chunk); }); });
}

SiluMul matrices(const at::Tensor& gate, const at::Tensor& up) {
  return {.gate = gate.const_data_ptr(), .up = up.const_data_ptr(), .stride = gate.stride(0), .rows = gate.size(0), .width = gate.size(1)};
}

struct SiluMulFunction : torch::autograd::Function<SiluMulFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    const at::Tensor output = at::empty(gate.sizes(), gate.options());
    SiluMul of = matrices(gate, up);
    of.output = output.mutable_data_ptr();
    run_silu(of, gate);
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1], grad_output = gradients[0].contiguous();
    const at::Tensor grad_gate = at::empty(gate.sizes(), gate.options()), grad_up = at::empty(gate.sizes(), gate.options());
    SiluMul of = matrices(gate, up);
    of.grad_output = grad_output.const_data_ptr();
    of.grad_gate = grad_gate.mutable_data_ptr();
    of.grad_up = grad_up.mutable_data_ptr();
    run_silu(of, gate);
    return {grad_gate, grad_up};
  }
};

}  // namespace

at::Tensor silu_mul(const at::Tensor& gate, const at::Tensor& up) {
  return fits_silu_kernel(gate, up) ? SiluMulFunction::apply(gate, up) : at::silu(gate) * up;
}

}  // namespace vla
