#include "worker/policies/nn/transformer_dropout.hpp"

#include <limits>

#include <torch/torch.h>

#include "worker/cuda/team.hpp"
#include "worker/cuda/transformer_dropout.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

constexpr int64_t kTokens[] = {0, 1};  // the dimensions

// A mask and the tensors that its pointers lead to.
struct Mask {
  CounterFill fill;
  at::Tensor position, step;
};

Mask mask_of(const at::Tensor& x, const StepRandom* random, double p, uint32_t stream) {
  TORCH_CHECK(x.dim() == 3 && x.size(2) % 4 == 0 && x.numel() < 4LL * std::numeric_limits<uint32_t>::max(),
              "dropout needs [S, B, a multiple of four], not ", x.sizes());
  Mask mask;
  mask.fill = {.kind = CounterFill::Kind::kDropout, .outer = x.size(0), .rows = x.size(1), .inner = x.size(2)};
  if (random == nullptr || p == 0) return mask;
  mask.position = random->position();
  mask.step = random->step_on_device();
  TORCH_CHECK(mask.position.size(0) == x.size(1) && mask.position.device() == x.device() && mask.position.scalar_type() == at::kLong &&
                  mask.position.is_contiguous() && (!mask.step.defined() || mask.step.device() == x.device()),
              "positions must be int64 [", x.size(1), "] on ", x.device());
  mask.fill.drop_probability = p;
  mask.fill.seed = random->seed();
  mask.fill.step = static_cast<uint32_t>(random->step());
  mask.fill.step_on_device = in_ptr<int64_t>(mask.step);
  mask.fill.stream = stream;
  mask.fill.position = in_ptr<int64_t>(mask.position);
  return mask;
}

void keep(torch::autograd::AutogradContext* context, const Mask& mask) {
  const CounterFill& fill = mask.fill;
  context->saved_data["mask"] = std::vector<int64_t>{fill.outer, fill.rows, fill.inner, static_cast<int64_t>(fill.seed),
                                                     static_cast<int64_t>(fill.step), static_cast<int64_t>(fill.stream)};
  context->saved_data["p"] = fill.drop_probability;
}

DropoutMask kept(torch::autograd::AutogradContext* context, const at::Tensor& position, const at::Tensor& step) {
  const std::vector<int64_t> n = context->saved_data["mask"].toIntVector();
  return DropoutMask({.kind = CounterFill::Kind::kDropout, .drop_probability = context->saved_data["p"].toDouble(),
                      .seed = static_cast<uint64_t>(n[3]), .step = static_cast<uint32_t>(n[4]), .step_on_device = in_ptr<int64_t>(step),
                      .stream = static_cast<uint32_t>(n[5]), .position = in_ptr<int64_t>(position), .outer = n[0], .rows = n[1], .inner = n[2]});
}

struct ReluDropout : torch::autograd::Function<ReluDropout> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, const Mask& of) {
    const at::Tensor x = packed(input), y = at::empty_like(x);
    const DropoutMask mask(of.fill);
    const int64_t blocks = of.fill.inner / 4;
    run_kernel(
        x, [&](cudaStream_t stream) { return relu_dropout_cuda(mask, in_ptr(x), out_ptr(y), element_of(x), stream); },
        [&](auto element) {
          using T = decltype(element);
          for_each(mask.tokens() * blocks, [&](int64_t i) { relu_dropout(mask, in_ptr<T>(x), out_ptr<T>(y), i / blocks, i % blocks); });
        });
    keep(context, of);
    context->save_for_backward({y});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const at::Tensor y = context->get_saved_variables()[0];
    const at::Tensor gradient = packed(gradients[0].to(y.scalar_type())), dx = at::empty_like(y);
    const DropoutMask mask = kept(context, {}, {});  // its scale alone: what was dropped is zero
    run_kernel(
        y, [&](cudaStream_t stream) { return relu_dropout_backward_cuda(mask, in_ptr(gradient), in_ptr(y), out_ptr(dx), element_of(y), stream); },
        [&](auto element) {
          using T = decltype(element);
          for_each(y.numel() / 4, [&](int64_t i) { relu_dropout_backward(mask, in_ptr<T>(gradient), in_ptr<T>(y), out_ptr<T>(dx), 4 * i); });
        });
    return {dx, {}};
  }
};

struct DropoutNormFunction : torch::autograd::Function<DropoutNormFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, const at::Tensor& added, const at::Tensor& gamma,
                            const at::Tensor& beta, const Mask& of, double eps) {
    const at::Tensor x = packed(input), y = packed(added), sum = at::empty_like(x), out = at::empty_like(x);
    const at::Tensor mean = at::empty({x.size(0), x.size(1), 1}, x.options().dtype(sum_type(x))), inverse_std = at::empty_like(mean);
    const DropoutMask mask(of.fill);
    const DropoutNormTensors tensors{.x = in_ptr(x), .y = in_ptr(y), .gamma = in_ptr(gamma), .beta = in_ptr(beta), .sum = out_ptr(sum),
                                     .out = out_ptr(out), .mean = out_ptr(mean), .inverse_std = out_ptr(inverse_std), .eps = eps};
    run_kernel(
        x, [&](cudaStream_t stream) { return add_dropout_norm_cuda(mask, tensors, element_of(x), stream); },
        [&](auto element) {
          for_each(mask.tokens(), [&](int64_t token) { vla::add_dropout_norm(mask, tensors.forward<decltype(element)>(), token, OneThread{}); });
        });
    keep(context, of);
    context->save_for_backward({sum, gamma, beta, mean, inverse_std, of.position, of.step});
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &gamma = saved[1], &beta = saved[2], &mean = saved[3], &inverse_std = saved[4];
    const at::Tensor gradient = packed(gradients[0].to(sum.scalar_type()));
    const DropoutMask mask = kept(context, saved[5], saved[6]);
    const at::Tensor dx = at::empty_like(sum), dy = mask.drops ? at::empty_like(sum) : dx;
    const DropoutNormTensors tensors{.gamma = in_ptr(gamma), .gradient = in_ptr(gradient), .sum = out_ptr(sum), .mean = out_ptr(mean),
                                     .inverse_std = out_ptr(inverse_std), .dx = out_ptr(dx), .dy = out_ptr(dy)};
    run_kernel(
        sum, [&](cudaStream_t stream) { return add_dropout_norm_backward_cuda(mask, tensors, element_of(sum), stream); },
        [&](auto element) {
          for_each(mask.tokens(), [&](int64_t token) { add_dropout_norm_backward(mask, tensors.backward<decltype(element)>(), token, OneThread{}); });
        });
    at::Tensor d_gamma, d_beta;
    if (sum.is_cuda()) {
      std::tie(std::ignore, d_gamma, d_beta) =
          at::native_layer_norm_backward(gradient, sum, gamma.sizes(), mean, inverse_std, gamma, beta, {false, true, true});
    } else {
      const at::Tensor exact = gradient.to(mean.scalar_type());
      d_gamma = (exact * (sum.to(mean.scalar_type()) - mean) * inverse_std).sum(kTokens).to(gamma.scalar_type());
      d_beta = exact.sum(kTokens).to(beta.scalar_type());
    }
    return {dx, dy, d_gamma, d_beta, {}, {}};
  }
};

}  // namespace

at::Tensor relu_dropout(const at::Tensor& x, const StepRandom* random, double p, uint32_t stream) {
  return ReluDropout::apply(x, mask_of(x, random, p, stream));
}

at::Tensor add_dropout_norm(const at::Tensor& x, const at::Tensor& y, const torch::nn::LayerNormImpl& norm, const StepRandom* random, double p,
                            uint32_t stream) {
  const at::ScalarType dtype = norm.weight.scalar_type();
  TORCH_CHECK(x.sizes() == y.sizes() && norm.weight.dim() == 1 && norm.weight.size(0) == x.size(-1), "layer norm of ", norm.weight.sizes(),
              " does not fit ", x.sizes(), " and ", y.sizes());
  return DropoutNormFunction::apply(x.to(dtype), y.to(dtype), norm.weight, norm.bias, mask_of(x, random, p, stream), norm.options.eps());
}

}  // namespace vla
