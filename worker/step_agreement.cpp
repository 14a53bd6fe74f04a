#include "worker/step_agreement.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

namespace vla {

StepAgreement::StepAgreement(const cxxrun::World& world, ShutdownWatcher& shutdown)
    : world_(world), shutdown_(shutdown), noted_(torch::zeros({world.size() + 1}, torch::dtype(torch::kDouble).device(world.device()))) {}

void StepAgreement::note(const torch::Tensor& loss, const torch::Tensor& grad_norm) {
  noted_[world_.rank()].copy_(at::isfinite(loss).logical_not());
  // Every rank has the same norm: one of them says so.
  if (world_.is_main()) noted_[-1].copy_(at::isfinite(grad_norm).logical_not());
}

torch::Tensor StepAgreement::exchange(const torch::Tensor& counts) {
  // Filled on the device: a copy from the host would wait for all that the device still has to do.
  const auto wish = [&](bool wanted) { return torch::full({1}, wanted ? 1.0 : 0.0, noted_.options()); };
  const auto all = torch::cat({counts, wish(shutdown_.take_save_request()), wish(shutdown_.stop_signal() != 0), noted_});
  world_.all_reduce_sum(all);
  noted_.zero_();
  sent_step_ = noted_step_;

  const int64_t n = counts.numel();
  if (!host_.defined()) host_ = torch::zeros({all.numel() - n}, torch::dtype(torch::kDouble).pinned_memory(world_.device().is_cuda()));
  host_.copy_(all.slice(0, n), /*non_blocking=*/true);
  if (world_.device().is_cuda()) {
    copied_.emplace(world_.device().type());
    copied_->record(c10::impl::VirtualGuardImpl(world_.device().type()).getStream(world_.device()));
  }
  unread_ = true;
  return all.slice(0, 0, n);
}

StepAgreement::Requests StepAgreement::requests() {
  if (!std::exchange(unread_, false)) return {};
  if (copied_) copied_->synchronize();
  const double* values = host_.const_data_ptr<double>();
  Requests requests{.save = values[0] > 0, .stop = values[1] > 0};
  NonFiniteStep bad{.step = sent_step_, .ranks = {}};
  for (int64_t rank = 0; rank < world_.size(); ++rank) {
    if (values[2 + rank] > 0) bad.ranks.push_back(rank);
  }
  if (!bad.ranks.empty() || values[2 + world_.size()] > 0) requests.non_finite = std::move(bad);
  return requests;
}

StepAgreement::Requests StepAgreement::settle() {
  Requests before = requests();
  exchange(torch::zeros({0}, torch::dtype(torch::kDouble).device(world_.device())));
  Requests now = requests();
  now.save |= before.save;
  now.stop |= before.stop;
  if (before.non_finite) now.non_finite = std::move(before.non_finite);
  return now;
}

}  // namespace vla
