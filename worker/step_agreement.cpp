#include "worker/step_agreement.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

namespace vla {

torch::Tensor StepAgreement::exchange(const torch::Tensor& counts) {
  const double save = shutdown_.take_save_request() ? 1 : 0;
  const double stop = shutdown_.stop_signal() != 0 ? 1 : 0;
  const auto wishes = torch::tensor({save, stop}, torch::kDouble).to(counts.device());
  const auto all = torch::cat({counts, wishes});
  world_.all_reduce_sum(all);

  if (!host_.defined()) host_ = torch::zeros({2}, torch::dtype(torch::kDouble).pinned_memory(counts.is_cuda()));
  host_.copy_(all.slice(0, -2), /*non_blocking=*/true);
  if (counts.is_cuda()) {
    copied_.emplace(counts.device().type());
    copied_->record(c10::impl::VirtualGuardImpl(counts.device().type()).getStream(counts.device()));
  }
  return all.slice(0, 0, -2);
}

StepAgreement::Requests StepAgreement::requests() {
  if (!host_.defined()) return {};
  if (copied_) copied_->synchronize();
  const double* wishes = host_.const_data_ptr<double>();
  return {wishes[0] > 0, wishes[1] > 0};
}

}  // namespace vla
