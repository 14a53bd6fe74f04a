#include "worker/metric_window.hpp"

#include <torch/torch.h>

namespace vla {

void MetricWindow::add_loss(const PolicyLoss& loss) {
  std::vector<torch::Tensor> values{loss.loss.detach().to(torch::kDouble)};
  names_.clear();
  for (const auto& [name, value] : loss.metrics) {
    names_.push_back(name);
    values.push_back(value.to(torch::kDouble));
  }
  const auto stacked = torch::stack(values);
  sums_ = sums_.defined() ? sums_.add_(stacked) : stacked;
}

void MetricWindow::end_step(const torch::Tensor& grad_norm, int64_t samples) {
  grad_norms_ = grad_norms_.defined() ? grad_norms_ + grad_norm : grad_norm;
  samples_ += samples;
  ++steps_;
}

StepMetrics MetricWindow::close(const cxxrun::World& world, std::chrono::nanoseconds waited) {
  using Seconds = std::chrono::duration<double>;
  const auto total = torch::cat({sums_, torch::tensor({Seconds(waited - waited_before_).count()}, torch::kDouble).to(sums_.device())});
  world.all_reduce_sum(total);
  const auto host = total.cpu();
  const double seconds = Seconds(std::chrono::steady_clock::now() - start_).count();
  const auto steps = static_cast<double>(steps_);

  StepMetrics metrics;
  metrics.loss = host[0].item<double>() / steps;
  for (size_t i = 0; i < names_.size(); ++i) metrics.more.emplace_back(names_[i], host[static_cast<int64_t>(i) + 1].item<double>() / steps);
  metrics.grad_norm = grad_norms_.item<double>() / steps;
  metrics.seconds_per_step = seconds / steps;
  metrics.samples_per_s = static_cast<double>(samples_) / seconds;
  metrics.data_wait = host[-1].item<double>() / static_cast<double>(world.size()) / seconds;
  restart(waited);
  return metrics;
}

void MetricWindow::restart(std::chrono::nanoseconds waited) {
  sums_ = grad_norms_ = torch::Tensor();
  steps_ = samples_ = 0;
  start_ = std::chrono::steady_clock::now();
  waited_before_ = waited;
}

}  // namespace vla
