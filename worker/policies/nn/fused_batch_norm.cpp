#include "worker/policies/nn/fused_batch_norm.hpp"

#include <limits>

#include <torch/torch.h>

#include "worker/cuda/batch_norm.hpp"
#include "worker/policies/nn/channel_affine.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

BatchNorm norm_of(const at::Tensor& x, const at::Tensor& row_weight, bool relu) {
  return {.images = x.size(0), .pixels_per_image = x.size(2) * x.size(3), .channels = x.size(1),
          .row_weight = in_ptr<float>(row_weight), .images_per_row = row_weight.defined() ? x.size(0) / row_weight.size(0) : 1, .relu = relu};
}

at::Tensor parts_of_sums(const at::Tensor& x) {
  return x.is_cuda() ? at::empty({kBatchNormBlocks, 2, x.size(1)}, x.options().dtype(sum_type(x))) : at::Tensor();
}

void moments(const BatchNorm& norm, const at::Tensor& x, const at::Tensor& sums) {
  const at::Tensor parts = parts_of_sums(x);
  run_kernel(
      x,
      [&](cudaStream_t stream) {
        return batch_norm_moments_cuda(norm, in_ptr(x), out_ptr(parts), out_ptr<double>(sums), element_of(x), stream);
      },
      [&](auto element) {
        using T = decltype(element);
        double count = 0;
        for (int64_t image = 0; image < norm.images; ++image) count += norm.image_weight(image) * static_cast<double>(norm.pixels_per_image);
        for_each(norm.channels, [&](int64_t channel) {
          Pack<double, 1> sum = {}, squares = {};
          norm.moments<1>(in_ptr<T>(x), sum, squares, channel, 0, 1);
          norm.finish_moments(in_ptr<T>(x), channel, sum.at[0], squares.at[0], count, out_ptr<double>(sums));
        });
      });
}

struct SumOverRanks : torch::CustomClassHolder {
  explicit SumOverRanks(AllReduceSum function) : all_reduce_sum(std::move(function)) {}
  AllReduceSum all_reduce_sum;
};

struct FusedNorm : torch::autograd::Function<FusedNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias,
                            const std::optional<at::Tensor>& added, const std::optional<at::Tensor>& weight_of_rows, const BatchNormState& state,
                            const AllReduceSum& all_reduce_sum, bool relu) {
    const at::Tensor residual = added.value_or(at::Tensor()), row_weight = weight_of_rows.value_or(at::Tensor());
    const at::Tensor x = channels_last(images);
    const int64_t channels = x.size(1);
    const at::Tensor sums = at::empty({2 * channels + 1}, x.options().dtype(at::kDouble));
    moments(norm_of(x, row_weight, relu), x, sums);
    if (all_reduce_sum) all_reduce_sum(sums);

    const at::Tensor constants = at::empty({4, channels}, x.options().dtype(sum_type(x)));
    const at::Tensor mean = constants[0], inverse_std = constants[1], scale = constants[2], shift = constants[3];
    const BatchNormConstants finish{.channels = channels, .eps = state.eps, .momentum = state.momentum, .sums = in_ptr<double>(sums),
                                    .gamma = in_ptr(weight), .beta = in_ptr(bias), .running_mean = out_ptr(state.running_mean),
                                    .running_var = out_ptr(state.running_var), .batches = out_ptr<int64_t>(state.batches),
                                    .mean = out_ptr(mean), .inverse_std = out_ptr(inverse_std), .scale = out_ptr(scale), .shift = out_ptr(shift)};
    run_kernel(
        weight, [&](cudaStream_t stream) { return batch_norm_constants_cuda(finish, element_of(weight), stream); },
        [&](auto element) {
          for (int64_t channel = 0; channel < channels; ++channel) finish.finish<decltype(element)>(channel);
        });
    const at::Tensor y = channel_affine_forward(x, scale, shift, residual, relu);
    context->save_for_backward({x, relu ? y : at::Tensor(), row_weight, mean, inverse_std, scale, sums[2 * channels]});
    context->saved_data["relu"] = relu;
    context->saved_data["residual"] = residual.defined();
    context->saved_data["parameters"] = weight.scalar_type();
    context->saved_data["sum"] = at::IValue::make_capsule(c10::make_intrusive<SumOverRanks>(all_reduce_sum));
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &y = saved[1], &mean = saved[3], &inverse_std = saved[4], &scale = saved[5], &count = saved[6];
    const at::Tensor gradient = channels_last(gradients[0].to(x.scalar_type()));
    const bool relu = context->saved_data["relu"].toBool(), has_residual = context->saved_data["residual"].toBool();
    const BatchNorm norm = norm_of(x, saved[2], relu);
    const at::Tensor sums = at::empty({2 * norm.channels}, x.options().dtype(at::kDouble));
    const at::Tensor d_bias = at::empty({norm.channels}, x.options().dtype(context->saved_data["parameters"].toScalarType()));
    const at::Tensor d_weight = at::empty_like(d_bias);
    const at::Tensor parts = parts_of_sums(x);
    run_kernel(
        x,
        [&](cudaStream_t stream) {
          return batch_norm_gradient_sums_cuda(norm, in_ptr(gradient), in_ptr(x), in_ptr(y), in_ptr(mean), in_ptr(inverse_std), out_ptr(parts),
                                               out_ptr<double>(sums), out_ptr(d_bias), out_ptr(d_weight), element_of(x), element_of(d_bias), stream);
        },
        [&](auto element) {
          using T = decltype(element);
          using R = Real<T>;
          for_each(norm.channels, [&](int64_t channel) {
            Pack<double, 1> sum = {}, products = {};
            norm.gradient_sums<1>(in_ptr<T>(gradient), in_ptr<T>(x), in_ptr<T>(y), in_ptr<R>(mean), in_ptr<R>(inverse_std), sum, products, channel, 0, 1);
            out_ptr<double>(sums)[channel] = sum.at[0];
            out_ptr<double>(sums)[norm.channels + channel] = products.at[0];
          });
          d_bias.copy_(sums.slice(0, 0, norm.channels));
          d_weight.copy_(sums.slice(0, norm.channels));
        });
    at::Tensor dx, d_residual;
    if (context->needs_input_grad(0)) {
      // Every rank's loss depends on the counted pixels of all ranks through mean and variance.
      const auto& add_up = c10::static_intrusive_pointer_cast<SumOverRanks>(context->saved_data["sum"].toCapsule())->all_reduce_sum;
      if (add_up) add_up(sums);
      dx = at::empty_like(x);
      if (has_residual) d_residual = relu ? at::empty_like(x) : gradient;
      run_kernel(
          x,
          [&](cudaStream_t stream) {
            return batch_norm_backward_cuda(norm, in_ptr(gradient), in_ptr(x), in_ptr(y), in_ptr(mean), in_ptr(inverse_std), in_ptr(scale),
                                            in_ptr<double>(sums), in_ptr<double>(count), out_ptr(dx), relu ? out_ptr(d_residual) : nullptr,
                                            element_of(x), stream);
          },
          [&](auto element) {
            using T = decltype(element);
            using R = Real<T>;
            for_each(norm.channels, [&](int64_t channel) {
              norm.backward<1>(in_ptr<T>(gradient), in_ptr<T>(x), in_ptr<T>(y), in_ptr<R>(mean), in_ptr<R>(inverse_std), in_ptr<R>(scale),
                               in_ptr<double>(sums), *in_ptr<double>(count), out_ptr<T>(dx), relu ? out_ptr<T>(d_residual) : nullptr, channel, 0, 1);
            });
          });
    }
    return {dx, d_weight, d_bias, d_residual, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor fused_batch_norm(const at::Tensor& x, const BatchNormState& state, const BatchStatistics& batch, const at::Tensor& residual, bool relu) {
  TORCH_CHECK(x.dim() == 4 && x.numel() < std::numeric_limits<uint32_t>::max(), "batch norm needs [N, C, H, W] of less than 2^32 numbers, not ", x.sizes());
  TORCH_CHECK((state.weight.scalar_type() == at::kDouble) == (x.scalar_type() == at::kDouble) && state.weight.size(0) == x.size(1) &&
                  state.weight.device() == x.device(),
              "batch norm: ", x.size(1), " channels of ", x.scalar_type(), " and parameters ", state.weight.sizes(), " of ", state.weight.scalar_type());
  at::Tensor row_weight;
  if (batch.weight.defined()) {
    row_weight = batch.weight.to(x.device(), at::kFloat).contiguous();
    TORCH_CHECK(x.size(0) % row_weight.size(0) == 0, "batch norm: ", x.size(0), " images are no multiple of ", row_weight.size(0), " rows");
  }
  return FusedNorm::apply(x, state.weight, state.bias, if_defined(residual), if_defined(row_weight), state, batch.all_reduce_sum, relu);
}

}  // namespace vla
