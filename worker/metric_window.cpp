#include "worker/metric_window.hpp"

#include <torch/torch.h>

namespace vla {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int64_t kTimes = 6;  // of a rank: data, forward, backward, exposed all-reduce, optimizer, wait in the loader

}  // namespace

void MetricWindow::add_loss(const PolicyLoss& loss) {
  std::vector<torch::Tensor> values{loss.loss.detach().to(torch::kDouble)};
  names_.clear();
  for (const auto& [name, value] : loss.metrics) {
    names_.push_back(name);
    values.push_back(value.to(torch::kDouble));
  }
  const auto stacked = torch::stack(values);
  if (!step_.defined()) {
    step_ = torch::zeros_like(stacked);
    sums_ = torch::zeros_like(stacked);
    norms_ = torch::zeros({2}, stacked.options());
  }
  step_.add_(stacked);
}

void MetricWindow::end_step(const torch::Tensor& grad_norm) {
  const auto norm = grad_norm.to(torch::kDouble);
  const auto good = at::isfinite(norm);
  norms_.add_(at::where(good, torch::stack({norm, torch::ones_like(norm)}), 0.0));
  // The mask, not a product: NaN times zero is NaN.
  sums_.add_(at::where(good, step_, 0.0));
  step_.zero_();
}

void MetricWindow::count_step(int64_t samples) {
  samples_ += samples;
  ++steps_;
}

StepMetrics MetricWindow::close(const cxxrun::World& world, std::chrono::nanoseconds waited) {
  const StepSeconds own = timer_.take();
  const int64_t ranks = world.size();
  auto times = torch::zeros({ranks, kTimes}, torch::kDouble);
  times[world.rank()] = torch::tensor({own.data, own.forward, own.backward, own.all_reduce, own.optimizer, Seconds(waited - waited_before_).count()}, torch::kDouble);
  const auto total = torch::cat({times.flatten().to(sums_.device()), sums_});
  world.all_reduce_sum(total);
  const torch::Tensor host = torch::cat({total, norms_}).cpu();
  times = host.slice(0, 0, ranks * kTimes).view({ranks, kTimes});
  const double* losses = host.const_data_ptr<double>() + ranks * kTimes;
  const double* norms = losses + sums_.numel();
  const double seconds = Seconds(std::chrono::steady_clock::now() - start_).count();
  const double good = norms[1];

  StepMetrics metrics;
  metrics.loss = losses[0] / good;  // NaN where no step was
  for (size_t i = 0; i < names_.size(); ++i) metrics.more.emplace_back(names_[i], losses[i + 1] / good);
  metrics.grad_norm = norms[0] / good;
  metrics.seconds_per_step = seconds / static_cast<double>(steps_);
  metrics.samples_per_s = static_cast<double>(samples_) / seconds;
  // The slowest rank is the one that has most to do by itself: the others wait for it in the all-reduce.
  metrics.slowest_rank = (times.select(1, 0) + times.select(1, 1) + times.select(1, 2) + times.select(1, 4)).argmax().item<int64_t>();
  const double* slowest = times.const_data_ptr<double>() + *metrics.slowest_rank * kTimes;
  metrics.data_s = slowest[0];
  metrics.forward_s = slowest[1];
  metrics.forward_backward_s = slowest[1] + slowest[2];
  metrics.all_reduce_s = slowest[3];
  metrics.optimizer_s = slowest[4];
  metrics.data_wait = times.select(1, 5).mean().item<double>() / seconds;
  if (const int64_t skipped = steps_ - static_cast<int64_t>(good); skipped > 0) metrics.more.emplace_back("skipped_steps", skipped);
  restart(waited);
  return metrics;
}

void MetricWindow::restart(std::chrono::nanoseconds waited) {
  if (step_.defined()) {
    step_.zero_();
    sums_.zero_();
    norms_.zero_();
  }
  steps_ = samples_ = 0;
  start_ = std::chrono::steady_clock::now();
  waited_before_ = waited;
  timer_.take();
}

}  // namespace vla
