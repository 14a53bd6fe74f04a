#include "worker/optim/ema.hpp"

#include <algorithm>
#include <cmath>

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"

namespace vla {

double ema_decay(const EmaOptions& options, int64_t step) {
  // diffusion_policy and RDT (models/ema_model.py) compute the decay before they count the step, diffusers 0.39 after.
  const bool counts_later = options.type == "diffusion_policy";
  const int64_t s = step - (counts_later ? 1 : 0) - options.update_after_step - 1;
  if (s <= 0) return 0;
  const double x = static_cast<double>(s);
  const double decay = options.use_ema_warmup || counts_later ? 1 - std::pow(1 + x / options.inv_gamma, -options.power)
                                                              : (1 + x) / (10 + x);
  return std::max(std::min(decay, options.decay), options.min_decay);
}

Ema::Ema(const torch::nn::Module& model, const EmaOptions& options) : options_(options) {
  const bool averages_batch_norms = options.type != "diffusion_policy";
  for (const auto& module : model.named_modules()) {
    if (!averages_batch_norms && module.value()->name().find("BatchNorm") != std::string::npos) continue;
    for (const auto& parameter : module.value()->named_parameters(/*recurse=*/false)) {
      if (!parameter.value().requires_grad()) continue;
      names_.push_back(module.key().empty() ? parameter.key() : module.key() + "." + parameter.key());
      parameters_.push_back(parameter.value());
    }
  }
  restart();
  const auto fits = [&](const torch::Tensor& parameter) {
    return fits_update_table(parameter) && parameter.device() == parameters_.front().device() && (parameter.is_cuda() || fast_mode());
  };
  if (!parameters_.empty() && std::ranges::all_of(parameters_, fits)) weight_ = torch::ones({}, shadow_.front().options());
}

void Ema::restart() {
  const torch::NoGradGuard no_grad;
  shadow_.clear();
  for (const torch::Tensor& parameter : parameters_) {
    const auto type = parameter.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    shadow_.push_back(parameter.detach().to(type, /*non_blocking=*/false, /*copy=*/true));
  }
}

void Ema::set_decay_for(int64_t step) {
  decay_ = ema_decay(options_, step);
  if (weight_.defined()) weight_.fill_(1 - decay_);
}

std::vector<UpdateRow> Ema::rows() const {
  std::vector<UpdateRow> rows;
  for (size_t i = 0; i < shadow_.size(); ++i) rows.push_back(update_row({.parameter = parameters_[i], .average = shadow_[i]}));
  return rows;
}

std::map<const void*, torch::Tensor> Ema::by_parameter() const {
  TORCH_CHECK(!in_scope_, "the average of averaged weights");
  std::map<const void*, torch::Tensor> averages;
  for (size_t i = 0; i < shadow_.size(); ++i) averages[parameters_[i].const_data_ptr()] = shadow_[i];
  return averages;
}

torch::Tensor* Ema::average_of(const torch::Tensor& parameter) {
  const auto found = std::ranges::find_if(parameters_, [&](const torch::Tensor& own) { return own.is_same(parameter); });
  return found == parameters_.end() ? nullptr : &shadow_[static_cast<size_t>(found - parameters_.begin())];
}

void Ema::update() {
  TORCH_CHECK(!in_scope_, "the average of averaged weights");
  const torch::NoGradGuard no_grad;
  if (shadow_.empty()) return;
  if (in_one_pass()) {
    table_.set_rows(rows(), parameters_.front().device());
    return table_.update({.average_weight = weight_.const_data_ptr<float>()});
  }
  TORCH_CHECK(!parameters_.front().is_cuda() || c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None,
              "the decay of this model's averages changes from step to step");
  if (decay_ == 0) return at::_foreach_copy_(shadow_, parameters_);
  // lerp takes one type; weights of 16 bits are widened first, all in few kernels.
  std::vector<torch::Tensor> same, widened, to_widen, shadow, shadow_of_widened;
  for (size_t i = 0; i < shadow_.size(); ++i) {
    const bool is_same = parameters_[i].scalar_type() == shadow_[i].scalar_type();
    (is_same ? same : to_widen).push_back(parameters_[i]);
    (is_same ? shadow : shadow_of_widened).push_back(shadow_[i]);
    if (!is_same) widened.push_back(torch::empty_like(shadow_[i]));
  }
  if (!same.empty()) at::_foreach_lerp_(shadow, same, 1 - decay_);
  if (widened.empty()) return;
  at::_foreach_copy_(widened, to_widen);
  at::_foreach_lerp_(shadow_of_widened, widened, 1 - decay_);
}

TensorMap Ema::shadow() const {
  TensorMap shadow;
  for (size_t i = 0; i < names_.size(); ++i) shadow[names_[i]] = shadow_[i];
  return shadow;
}

TensorMap Ema::averaged(TensorMap state_dict) const {
  for (size_t i = 0; i < names_.size(); ++i) state_dict.at(names_[i]) = shadow_[i].to(parameters_[i].scalar_type());
  return state_dict;
}

void Ema::load(const TensorMap& shadow) {
  copy_by_name(shadow, this->shadow(), "the averaged weights do not fit the policy");
}

Ema::Scope::Scope(Ema& ema) : ema_(ema) {
  TORCH_CHECK(!ema.in_scope_, "the average is already in use");
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : ema.parameters_) own_.push_back(parameter.detach().clone());
  if (!own_.empty()) at::_foreach_copy_(ema.parameters_, ema.shadow_);
  ema.in_scope_ = true;
}

Ema::Scope::~Scope() {
  const torch::NoGradGuard no_grad;
  if (!own_.empty()) at::_foreach_copy_(ema_.parameters_, own_);
  ema_.in_scope_ = false;
}

}  // namespace vla
