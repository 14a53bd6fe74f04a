#include "worker/optim/ema.hpp"

#include <algorithm>
#include <cmath>

#include <torch/torch.h>

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
}

void Ema::restart() {
  const torch::NoGradGuard no_grad;
  shadow_.clear();
  for (const torch::Tensor& parameter : parameters_) {
    const auto type = parameter.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    shadow_.push_back(parameter.detach().to(type, /*non_blocking=*/false, /*copy=*/true));
  }
}

void Ema::update(int64_t step) {
  TORCH_CHECK(!in_scope_, "the average of averaged weights");
  const torch::NoGradGuard no_grad;
  const double decay = ema_decay(options_, step);
  if (shadow_.empty()) return;
  if (decay == 0) return at::_foreach_copy_(shadow_, parameters_);
  // lerp takes one type; weights of 16 bits are widened first, all in few kernels.
  std::vector<torch::Tensor> same, widened, to_widen, shadow, shadow_of_widened;
  for (size_t i = 0; i < shadow_.size(); ++i) {
    const bool is_same = parameters_[i].scalar_type() == shadow_[i].scalar_type();
    (is_same ? same : to_widen).push_back(parameters_[i]);
    (is_same ? shadow : shadow_of_widened).push_back(shadow_[i]);
    if (!is_same) widened.push_back(torch::empty_like(shadow_[i]));
  }
  if (!same.empty()) at::_foreach_lerp_(shadow, same, 1 - decay);
  if (widened.empty()) return;
  at::_foreach_copy_(widened, to_widen);
  at::_foreach_lerp_(shadow_of_widened, widened, 1 - decay);
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
