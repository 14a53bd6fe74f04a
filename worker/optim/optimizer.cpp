#include "worker/optim/optimizer.hpp"

#include <algorithm>
#include <map>

#include <torch/torch.h>

#include "worker/distributed/bucket_shares.hpp"
#include "worker/optim/ema.hpp"
#include "worker/policies/nn/fast_mode.hpp"

namespace vla {
namespace {

bool is_16_bit(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kBFloat16 || tensor.scalar_type() == torch::kHalf;
}

// As float32, in few kernels.
std::vector<torch::Tensor> widened(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> wide;
  for (const torch::Tensor& tensor : tensors)
    wide.push_back(torch::empty_like(tensor, tensor.options().dtype(torch::kFloat)));
  at::_foreach_copy_(wide, tensors);
  return wide;
}

torch::Tensor make_master(const std::string& name, const torch::Tensor& parameter, const TensorMap& masters) {
  const auto unrounded = masters.find(name);
  if (unrounded == masters.end()) return parameter.detach().to(torch::kFloat);
  TORCH_CHECK(unrounded->second.sizes() == parameter.sizes(), "the unrounded ", name, " has another shape");
  return torch::empty_like(parameter, parameter.options().dtype(torch::kFloat).requires_grad(false))
      .copy_(unrounded->second.detach());
}

}  // namespace

Optimizer::Optimizer(const std::vector<ParameterGroup>& groups, const OptimizerOptions& options,
                     const TensorMap& masters)
    : options_(options), one_pass_(fast_mode()) {
  for (const ParameterGroup& group : groups) {
    const size_t first = buckets_.size();
    for (const auto& [name, parameter] : group.parameters) {
      const auto fits = [&p = parameter](const Bucket& bucket) {
        const torch::Tensor& other = bucket.slots.front().parameter;
        return other.device() == p.device() && other.scalar_type() == p.scalar_type();
      };
      auto bucket = std::find_if(buckets_.begin() + static_cast<ptrdiff_t>(first), buckets_.end(), fits);
      if (bucket == buckets_.end()) {
        buckets_.push_back({.lr = group.lr > 0 ? group.lr : options.lr, .lr_on_device = {}, .slots = {}});
        bucket = buckets_.end() - 1;
        if (parameter.is_cuda() || one_pass_)
          bucket->lr_on_device = torch::full({}, bucket->lr, parameter.options().dtype(torch::kFloat));
      }
      const torch::Tensor master =
          options.master_weights && is_16_bit(parameter) ? make_master(name, parameter, masters) : torch::Tensor();
      const torch::Tensor& updated = master.defined() ? master : parameter;
      bucket->slots.push_back({name, parameter, torch::zeros_like(updated), torch::zeros_like(updated),
                               torch::zeros({}, parameter.options().dtype(torch::kFloat)), master});
      one_pass_ = one_pass_ && fits_update_table(parameter) &&
                  parameter.device() == buckets_.front().slots.front().parameter.device();
    }
  }
  skipped_ = torch::zeros({}, buckets_.empty() ? torch::kCPU : buckets_.front().slots.front().parameter.device());
  one_pass_ = one_pass_ && !buckets_.empty();
  clip_factor_ = torch::ones_like(skipped_);
  skip_ = torch::zeros_like(skipped_);
}

void Optimizer::set_lr_factor(double factor) {
  factor_ = factor;
  for (Bucket& bucket : buckets_) {
    if (bucket.lr_on_device.defined()) bucket.lr_on_device.fill_(bucket.lr * factor);
  }
}

std::vector<torch::Tensor> Optimizer::gradients() const {
  std::vector<torch::Tensor> gradients;
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) {
      if (slot.parameter.grad().defined()) gradients.push_back(slot.parameter.grad());
    }
  }
  return gradients;
}

torch::Tensor Optimizer::clip_grad_norm() {
  const torch::NoGradGuard no_grad;
  if (one_pass_) {
    if (!norm_.defined()) norm_ = torch::zeros_like(skipped_);
    set_rows();
    clipped_ = true;
    if (shares_ == nullptr) {
      table_.gradient_norm(options_.grad_clip_norm, norm_, clip_factor_);
    } else {
      table_.sum_of_squares(sum_);
      all_reduce_sum_(sum_);
      table_.norm_of(sum_, options_.grad_clip_norm, norm_, clip_factor_);
    }
    return norm_;
  }
  std::map<at::ScalarType, std::vector<torch::Tensor>> by_type;  // kernels that hold several types are slow
  for (const torch::Tensor& gradient : gradients()) by_type[gradient.scalar_type()].push_back(gradient);
  if (by_type.empty()) return norm_ = torch::zeros_like(skipped_);
  std::vector<torch::Tensor> norms;
  for (const auto& [type, grads] : by_type) {
    // The sum of squares of 16-bit gradients would overflow, or lose most of its digits.
    const auto wide = type == torch::kDouble ? torch::kDouble : torch::kFloat;
    norms.push_back(torch::linalg_vector_norm(torch::stack(at::_foreach_norm(grads, 2, wide)), 2));
  }
  norm_ = norms.size() == 1 ? norms.front() : torch::linalg_vector_norm(torch::stack(norms), 2);
  if (options_.grad_clip_norm > 0) {
    const torch::Tensor factor = (options_.grad_clip_norm / (norm_ + 1e-6)).clamp_max(1);
    // In their own type it is faster, but float16 has no small factors.
    for (const auto& [type, grads] : by_type) at::_foreach_mul_(grads, type == torch::kHalf ? factor : factor.to(type));
  }
  return norm_;
}

// float32 scalar, 1 or 0; undefined when no step is ever left out. The kernels compare with 1, but flags of several
// ranks may have been added up.
torch::Tensor Optimizer::to_skip(const torch::Tensor& found_inf) const {
  torch::Tensor skip;
  if (found_inf.defined()) skip = found_inf.ne(0);
  if (norm_.defined()) {
    const torch::Tensor is_bad = norm_.isfinite().logical_not();
    skip = skip.defined() ? skip.logical_or(is_bad) : is_bad;
  }
  return skip.defined() ? skip.to(torch::kFloat) : skip;
}

// Parameters with a gradient, and with them all that is averaged, the others too.
void Optimizer::set_rows() {
  std::map<const void*, torch::Tensor> averages;
  if (after_.average != nullptr && after_.average->in_one_pass()) averages = after_.average->by_parameter();
  std::vector<UpdateRow> rows;
  std::vector<const Slot*> slots;
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) {
      if (!slot.parameter.grad().defined()) continue;
      slots.push_back(&slot);
      const auto average = averages.extract(slot.parameter.const_data_ptr());
      rows.push_back(update_row({.parameter = slot.parameter,
                                 .gradient = slot.parameter.grad(),
                                 .master = slot.master,
                                 .exp_avg = slot.exp_avg,
                                 .exp_avg_sq = slot.exp_avg_sq,
                                 .step = slot.step,
                                 .lr = bucket.lr_on_device,
                                 .average = average.empty() ? torch::Tensor() : average.mapped()}));
    }
  }
  if (!averages.empty()) {
    for (const UpdateRow& row : after_.average->rows()) {
      if (averages.contains(row.parameter)) rows.push_back(row);
    }
  }
  if (shares_ == nullptr) return table_.set_rows(std::move(rows), skipped_.device());
  UpdateGroups groups = this->groups(slots);
  groups.emplace_back();  // what is only averaged
  for (size_t row = slots.size(); row < rows.size(); ++row) groups.back().push_back({.row = static_cast<int64_t>(row), .first = 0, .end = rows[row].numel});
  table_.set_rows(std::move(rows), groups, skipped_.device());
}

void Optimizer::step_in_one_pass(const torch::Tensor& found_inf) {
  if (!clipped_) set_rows();
  table_.begin_update(norm_, found_inf, skip_, skipped_);
  const bool averages = after_.average != nullptr && after_.average->in_one_pass();
  const UpdateRule rule{.beta1 = static_cast<float>(options_.beta1),
                        .beta2 = static_cast<float>(options_.beta2),
                        .eps = static_cast<float>(options_.eps),
                        .weight_decay = static_cast<float>(options_.weight_decay),
                        .decoupled = options_.type != "adam",
                        .clears_gradients = after_.zero_grad,
                        .clip_factor = clipped_ ? clip_factor_.const_data_ptr<float>() : nullptr,
                        .skip = skip_.const_data_ptr<float>(),
                        .average_weight = averages ? after_.average->weight_on_device().const_data_ptr<float>() : nullptr};
  if (shares_ == nullptr) {
    table_.update(rule);
  } else {
    // A bucket's parameters travel while the next are updated.
    for (size_t i = 0; i <= shares_->buckets().size(); ++i) {
      table_.update_group(rule, i);
      if (i < shares_->buckets().size()) shares_->gather_parameters(i);
    }
    shares_->wait();
  }
  clipped_ = false;
  if (after_.average != nullptr && !averages) after_.average->update();
  if (after_.release_grad) release_grad();
}

void Optimizer::step(const torch::Tensor& found_inf) {
  const torch::NoGradGuard no_grad;
  if (one_pass_) return step_in_one_pass(found_inf);
  const torch::Tensor skip = to_skip(found_inf);
  if (skip.defined()) skipped_ += skip;
  for (const Bucket& bucket : buckets_) step(bucket, skip);
  if (after_.zero_grad) zero_grad();
  if (after_.average != nullptr) after_.average->update();
  if (after_.release_grad) release_grad();
}

void Optimizer::step(const Bucket& bucket, const torch::Tensor& skip) {
  const OptimizerOptions& o = options_;
  std::vector<torch::Tensor> parameters, grads, exp_avgs, exp_avg_sqs, steps, rounded;
  for (const Slot& slot : bucket.slots) {
    const torch::Tensor& grad = slot.parameter.grad();
    if (!grad.defined()) continue;
    // The kernels walk memory, not indices.
    TORCH_CHECK(grad.strides() == slot.parameter.strides() || (grad.is_contiguous() && slot.parameter.is_contiguous()),
                "gradient of ", slot.name, " is laid out unlike its parameter");
    parameters.push_back(slot.master.defined() ? slot.master : slot.parameter);
    grads.push_back(grad);
    exp_avgs.push_back(slot.exp_avg);
    exp_avg_sqs.push_back(slot.exp_avg_sq);
    steps.push_back(slot.step);
    if (slot.master.defined()) rounded.push_back(slot.parameter);
  }
  if (parameters.empty()) return;
  const bool has_masters = !rounded.empty();  // a bucket has one type: all or none
  if (has_masters) grads = widened(grads);
  if (skip.defined()) {
    at::_foreach_add_(steps, 1 - skip);
  } else {
    at::_foreach_add_(steps, 1);
  }
  const auto found_inf = skip.defined() ? std::optional(skip) : std::nullopt;
  const auto update = [&](const auto& lr) {
    if (o.type == "adam") {
      at::_fused_adam_(parameters, grads, exp_avgs, exp_avg_sqs, {}, steps, lr, o.beta1, o.beta2, o.weight_decay, o.eps,
                       false, false, {}, found_inf);
    } else {
      at::_fused_adamw_(parameters, grads, exp_avgs, exp_avg_sqs, {}, steps, lr, o.beta1, o.beta2, o.weight_decay,
                        o.eps, false, false, {}, found_inf);
    }
  };
  // On the GPU the rate is read from memory, so that a captured graph sees later changes; the CPU kernel takes it in
  // full precision.
  if (bucket.lr_on_device.defined()) {
    update(bucket.lr_on_device);
  } else {
    update(bucket.lr * factor_);
  }
  if (has_masters) at::_foreach_copy_(rounded, parameters);
}

void Optimizer::zero_grad() {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> grads = gradients();
  if (!grads.empty()) at::_foreach_zero_(grads);
}

void Optimizer::release_grad() {
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) slot.parameter.mutable_grad() = torch::Tensor();
  }
}

TensorMap Optimizer::state() const {
  TensorMap state;
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) {
      state[slot.name + ".exp_avg"] = slot.exp_avg;
      state[slot.name + ".exp_avg_sq"] = slot.exp_avg_sq;
      state[slot.name + ".step"] = slot.step;
      if (slot.master.defined()) state[slot.name + ".master"] = slot.master;
    }
  }
  return state;
}

void Optimizer::load_state(const TensorMap& state) {
  TensorMap stored = state, own = this->state();
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) {
      const std::string name = slot.name + ".master";
      if (slot.master.defined() && !stored.contains(name)) {
        stored[name] = slot.parameter.detach();
      } else if (!slot.master.defined() && stored.contains(name)) {
        own[name] = slot.parameter.detach();
      }
    }
  }
  copy_by_name(stored, own, "the optimizer's state does not fit the policy");
}

}  // namespace vla
