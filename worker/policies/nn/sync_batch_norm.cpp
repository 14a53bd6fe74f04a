#include "worker/policies/nn/sync_batch_norm.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/fused_batch_norm.hpp"

namespace vla {
namespace {

constexpr int64_t kPixels[] = {0, 2, 3};  // every dimension but the channels

at::Tensor per_channel(const at::Tensor& x) { return x.view({1, -1, 1, 1}); }

void add_up(const AllReduceSum& all_reduce_sum, const at::Tensor& sums) {
  if (all_reduce_sum) all_reduce_sum(sums);
}

struct Moments {
  at::Tensor mean, variance;  // float64 [C]; the variance is biased
  at::Tensor count;  // float64 []
};

// Of all ranks' counted pixels. x in the dtype of statistics; weight [N, 1, 1, 1].
Moments global_moments(const at::Tensor& x, const at::Tensor& weight, const AllReduceSum& all_reduce_sum) {
  // Locally in two passes; then count, sum and sum of squares merge the ranks (Chan et al. 1979) without a second exchange. Their
  // cancellation is harmless in float64 with vectors that are exact to float32.
  const at::Tensor local_count = weight.sum(at::kDouble) * static_cast<double>(x.size(2) * x.size(3));
  const at::Tensor safe_count = local_count.clamp_min(1);
  const at::Tensor local_mean = (x * weight).sum(kPixels).to(at::kDouble) / safe_count;
  const at::Tensor squares = ((x - per_channel(local_mean).to(x.scalar_type())).square_() * weight).sum(kPixels).to(at::kDouble);
  const at::Tensor sum = local_mean * local_count;
  const at::Tensor sums = at::cat({sum, squares + local_mean * sum, local_count.view({1})});
  add_up(all_reduce_sum, sums);
  const int64_t channels = x.size(1);
  const at::Tensor count = sums[2 * channels];
  const at::Tensor mean = sums.slice(0, 0, channels) / count;
  const at::Tensor variance = (sums.slice(0, channels, 2 * channels) / count - mean.square()).clamp_min(0);
  return {mean, variance, count};
}

struct SharedSum : torch::CustomClassHolder {
  explicit SharedSum(AllReduceSum function) : all_reduce_sum(std::move(function)) {}
  AllReduceSum all_reduce_sum;
};

// (x - mean) * inverse_std * gamma + beta, where mean and inverse_std are the global batch's functions of x.
struct Normalize : torch::autograd::Function<Normalize> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta,
                            const at::Tensor& row_share, const at::Tensor& mean, const at::Tensor& inverse_std,
                            const AllReduceSum& all_reduce_sum) {
    context->save_for_backward({x, gamma, row_share, mean, inverse_std});
    context->saved_data["sum"] = at::IValue::make_capsule(c10::make_intrusive<SharedSum>(all_reduce_sum));
    const at::Tensor centred = x.to(mean.scalar_type()) - per_channel(mean);
    return at::addcmul(per_channel(beta), centred, per_channel(inverse_std * gamma)).to(x.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradient) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &gamma = saved[1], &row_share = saved[2], &mean = saved[3], &inverse_std = saved[4];
    const at::Tensor dy = gradient[0].to(mean.scalar_type());
    const at::Tensor normalized = (x.to(mean.scalar_type()) - per_channel(mean)) * per_channel(inverse_std);
    const at::Tensor local = at::stack({dy.sum(kPixels), (dy * normalized).sum(kPixels)});  // [2, C]: gradients of beta and gamma
    at::Tensor dx;
    if (context->needs_input_grad(0)) {
      // Every rank's loss depends on the counted pixels of all ranks through mean and variance.
      const at::Tensor global = local.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
      add_up(c10::static_intrusive_pointer_cast<SharedSum>(context->saved_data["sum"].toCapsule())->all_reduce_sum, global);
      const at::Tensor sums = global.to(dy.scalar_type());
      const at::Tensor through_statistics = (per_channel(sums[0]) + normalized * per_channel(sums[1])) * row_share;
      dx = ((dy - through_statistics) * per_channel(gamma * inverse_std)).to(x.scalar_type());
    }
    return {dx, local[1].to(gamma.scalar_type()), local[0].to(gamma.scalar_type()), {}, {}, {}, {}};
  }
};

}  // namespace

SyncBatchNorm2d::SyncBatchNorm2d(int64_t channels, double eps, double momentum) : eps_(eps), momentum_(momentum) {
  weight_ = register_parameter("weight", torch::ones({channels}));
  bias_ = register_parameter("bias", torch::zeros({channels}));
  running_mean_ = register_buffer("running_mean", torch::zeros({channels}));
  running_var_ = register_buffer("running_var", torch::ones({channels}));
  num_batches_tracked_ = register_buffer("num_batches_tracked", torch::zeros({}, at::kLong));
}

void SyncBatchNorm2d::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  num_batches_tracked_.set_data(num_batches_tracked_.to(at::kLong));
}

void SyncBatchNorm2d::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  num_batches_tracked_.set_data(num_batches_tracked_.to(at::kLong));
}

at::Tensor SyncBatchNorm2d::forward(const at::Tensor& x, const BatchStatistics& batch) {
  TORCH_CHECK(x.dim() == 4, "batch norm needs [N, C, H, W], not ", x.sizes());
  if (!is_training()) {
    return at::batch_norm(x, weight_, bias_, running_mean_, running_var_, /*training=*/false, 0, eps_, /*cudnn_enabled=*/false);
  }
  const at::ScalarType dtype = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Moments moments;
  at::Tensor row_share;  // [N, 1, 1, 1]: what a pixel of the row adds to the mean
  {
    const torch::NoGradGuard no_grad;
    at::Tensor weight = batch.weight.defined() ? batch.weight.to(dtype) : at::ones({x.size(0)}, x.options().dtype(dtype));
    TORCH_CHECK(x.size(0) % weight.size(0) == 0, "batch norm: ", x.size(0), " images are no multiple of ", weight.size(0), " rows");
    weight = weight.repeat_interleave(x.size(0) / weight.size(0), 0, x.size(0)).view({-1, 1, 1, 1});
    moments = global_moments(x.to(dtype), weight, batch.all_reduce_sum);
    row_share = weight / moments.count.to(dtype);

    const at::Tensor unbiased = moments.variance * (moments.count / (moments.count - 1).clamp_min(1));
    running_mean_.lerp_(moments.mean.to(running_mean_.scalar_type()), momentum_);
    running_var_.lerp_(unbiased.to(running_var_.scalar_type()), momentum_);
    num_batches_tracked_ += 1;
  }
  return Normalize::apply(x, weight_, bias_, row_share, moments.mean.to(dtype), (moments.variance + eps_).rsqrt().to(dtype),
                          batch.all_reduce_sum);
}

at::Tensor SyncBatchNorm2d::forward(const at::Tensor& x, const BatchStatistics& batch, const at::Tensor& residual, bool relu) {
  if (is_training() && fast_mode()) {
    const BatchNormState state{.weight = weight_, .bias = bias_, .running_mean = running_mean_, .running_var = running_var_,
                               .batches = num_batches_tracked_, .eps = eps_, .momentum = momentum_};
    return fused_batch_norm(x, state, batch, residual, relu);
  }
  at::Tensor y = forward(x, batch);
  if (residual.defined()) y += residual;
  return relu ? y.relu_() : y;
}

}  // namespace vla
