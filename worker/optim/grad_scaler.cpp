#include "worker/optim/grad_scaler.hpp"

#include <cmath>
#include <map>

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "common/error.hpp"

namespace vla {

GradScaler::GradScaler(const GradScalerOptions& options, at::Device device)
    : options_(options),
      scale_(at::full({}, options.init_scale, at::TensorOptions(device).dtype(at::kFloat))),
      growth_tracker_(at::zeros({}, at::TensorOptions(device).dtype(at::kInt))),
      found_inf_(at::zeros({}, at::TensorOptions(device).dtype(at::kFloat))) {}

void GradScaler::unscale(const std::vector<at::Tensor>& gradients) {
  const c10::NoGradGuard no_grad;
  found_inf_.zero_();
  // In double, as torch does: the reciprocal of a scale that is no power of two.
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;  // what one call may hold
  for (const at::Tensor& gradient : gradients) by_type[gradient.scalar_type()].push_back(gradient);
  for (const auto& [type, group] : by_type) at::_amp_foreach_non_finite_check_and_unscale_(group, found_inf_, inverse);
}

void GradScaler::update() {
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
}

void GradScaler::load_state(const TensorMap& state) {
  const auto scale = state.find("scale");
  if (scale != state.end() && scale->second.numel() == 1) {
    const double value = scale->second.item<double>();
    if (!(value > 0) || !std::isfinite(value))
      throw cxxrun::Error("the state of loss scaling is damaged: scale is {}", value);
  }
  copy_by_name(state, this->state(), "the state of loss scaling is damaged");
}

}  // namespace vla
