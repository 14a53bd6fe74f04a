#include "worker/policies/nn/latent_sample.hpp"

#include <torch/torch.h>

#include "worker/cuda/latent_sample.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

LatentSample sample_of(const at::Tensor& noise, const at::Tensor& weight) {
  return {.rows = noise.size(0), .dim = noise.size(1), .weight = in_ptr<float>(weight)};
}

struct SampleLatent : torch::autograd::Function<SampleLatent> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& parameters, const at::Tensor& noise,
                                                const at::Tensor& weight) {
    const at::Tensor latent = at::empty_like(noise), divergence = at::empty({}, noise.options().dtype(sum_type(noise)));
    const LatentSample of = sample_of(noise, weight);
    run_kernel(
        noise,
        [&](cudaStream_t stream) {
          return latent_sample_forward_cuda(of, in_ptr(parameters), in_ptr(noise), out_ptr(latent), out_ptr(divergence), element_of(noise), stream);
        },
        [&](auto element) {
          using T = decltype(element);
          Real<T> sum = 0;
          for (int64_t i = 0; i < noise.numel(); ++i) sum += of.forward(in_ptr<T>(parameters), in_ptr<T>(noise), out_ptr<T>(latent), i);
          *out_ptr<Real<T>>(divergence) = sum;
        });
    context->save_for_backward({parameters, noise, weight});
    return {latent, divergence};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &parameters = saved[0], &noise = saved[1], d_parameters = at::empty_like(parameters);
    const at::Tensor d_latent = gradients[0].to(noise.scalar_type()).contiguous(), d_divergence = gradients[1].to(sum_type(noise));
    const LatentSample of = sample_of(noise, saved[2]);
    run_kernel(
        noise,
        [&](cudaStream_t stream) {
          return latent_sample_backward_cuda(of, in_ptr(parameters), in_ptr(noise), in_ptr(d_latent), in_ptr(d_divergence), out_ptr(d_parameters),
                                             element_of(noise), stream);
        },
        [&](auto element) {
          using T = decltype(element);
          for_each(noise.numel(), [&](int64_t i) {
            of.backward(in_ptr<T>(parameters), in_ptr<T>(noise), in_ptr<T>(d_latent), *in_ptr<Real<T>>(d_divergence), out_ptr<T>(d_parameters), i);
          });
        });
    return {d_parameters, {}, {}};
  }
};

}  // namespace

SampledLatent sample_latent(const at::Tensor& parameters, const at::Tensor& noise, const at::Tensor& weight) {
  TORCH_CHECK(parameters.dim() == 2 && noise.dim() == 2 && parameters.size(0) == noise.size(0) && parameters.size(1) == 2 * noise.size(1) &&
                  weight.dim() == 1 && weight.size(0) == noise.size(0) && weight.scalar_type() == at::kFloat,
              "noise ", noise.sizes(), " for parameters ", parameters.sizes(), " with weights ", weight.sizes());
  const at::ScalarType dtype = at::promote_types(parameters.scalar_type(), noise.scalar_type());
  const auto results = SampleLatent::apply(parameters.to(dtype).contiguous(), noise.to(dtype).contiguous(), weight.contiguous());
  return {results[0], results[1]};
}

}  // namespace vla
