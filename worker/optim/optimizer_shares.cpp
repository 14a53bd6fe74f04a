// The part of Optimizer that shares its work among ranks.
#include <algorithm>
#include <map>

#include <torch/torch.h>

#include "worker/distributed/bucket_shares.hpp"
#include "worker/optim/ema.hpp"
#include "worker/optim/optimizer.hpp"

namespace vla {

// This rank's parts of the rows of `slots`, by bucket.
UpdateGroups Optimizer::groups(const std::vector<const Slot*>& slots) const {
  UpdateGroups groups(shares_->buckets().size());
  for (size_t row = 0; row < slots.size(); ++row) {
    const Slot& slot = *slots[row];
    TORCH_CHECK(slot.shared, slot.name, " has a gradient that is in no bucket");
    const cxxrun::BucketShares::Bucket& bucket = shares_->buckets()[*slot.shared];
    const int64_t first = std::clamp<int64_t>(bucket.begin - slot.offset, 0, slot.parameter.numel());
    const int64_t end = std::clamp<int64_t>(bucket.end - slot.offset, 0, slot.parameter.numel());
    if (first < end) {
      groups[*slot.shared].push_back({.row = static_cast<int64_t>(row), .first = first, .end = end, .in_norm = bucket.is_divided() || shares_->is_main()});
    }
  }
  return groups;
}

void Optimizer::share(cxxrun::BucketShares& shares, std::function<void(const torch::Tensor&)> all_reduce_sum) {
  TORCH_CHECK(one_pass_ && (after_.average == nullptr || after_.average->in_one_pass()), "only an update in one pass is shared");
  const torch::NoGradGuard no_grad;
  shares_ = &shares;
  all_reduce_sum_ = std::move(all_reduce_sum);
  sum_ = torch::zeros_like(skipped_, skipped_.options().dtype(torch::kDouble));
  table_ = {};
  std::map<const void*, Slot*> slots;  // by parameter
  for (Bucket& bucket : buckets_) {
    for (Slot& slot : bucket.slots) slots[slot.parameter.unsafeGetTensorImpl()] = &slot;
  }
  for (size_t i = 0; i < shares.buckets().size(); ++i) {
    const cxxrun::BucketShares::Bucket& bucket = shares.buckets()[i];
    std::vector<torch::Tensor*> exp_avgs, exp_avg_sqs, masters, averages;
    for (size_t k = 0; k < bucket.parameters.size(); ++k) {
      const auto found = slots.find(bucket.parameters[k].unsafeGetTensorImpl());
      TORCH_CHECK(found != slots.end(), "a parameter is trained, but not by this optimizer");
      Slot& slot = *found->second;
      slot.shared = i;
      slot.offset = bucket.offsets[k];
      exp_avgs.push_back(&slot.exp_avg);
      exp_avg_sqs.push_back(&slot.exp_avg_sq);
      masters.push_back(&slot.master);
      averages.push_back(after_.average != nullptr ? after_.average->average_of(slot.parameter) : nullptr);
    }
    auto& memory = shared_state_.emplace_back();
    if (!bucket.is_divided()) continue;
    for (const auto& tensors : {exp_avgs, exp_avg_sqs, masters, averages}) memory.push_back(cxxrun::BucketShares::place(bucket, tensors));
  }
}

void Optimizer::gather_state() {
  if (shares_ == nullptr) return;
  for (size_t i = 0; i < shared_state_.size(); ++i) {
    for (const torch::Tensor& memory : shared_state_[i]) shares_->gather(shares_->buckets()[i], memory);
  }
  shares_->wait();
}

}  // namespace vla
