#include "worker/distributed/bucket_shares.hpp"

#include <algorithm>

#include <torch/types.h>

namespace cxxrun {
namespace {

constexpr int64_t kAlignment = 16;  // bytes, of what kernels read and write fast

at::Tensor view_of(const at::Tensor& memory, const at::Tensor& like, int64_t offset) {
  return memory.as_strided(like.sizes(), like.strides(), offset);
}

}  // namespace

const BucketShares::Bucket& BucketShares::learn(c10d::GradBucket& gradients) {
  const size_t index = gradients.getIndex();
  if (index < buckets_.size()) return buckets_[index];
  TORCH_CHECK(index == buckets_.size(), "bucket ", index, " comes before bucket ", buckets_.size());
  const at::Tensor& buffer = gradients.getBuffer();
  Bucket bucket{.parameters = gradients.getParameters(), .offsets = {}, .numel = buffer.numel(), .begin = 0, .end = buffer.numel()};
  const int64_t unit = std::max<int64_t>(1, kAlignment / buffer.element_size()), ranks = group_->getSize();
  bool is_even = bucket.numel % (unit * ranks) == 0;
  for (const at::Tensor& parameter : bucket.parameters) {
    const at::Tensor& gradient = parameter.grad();
    TORCH_CHECK(gradient.defined() && gradient.is_alias_of(buffer), "a gradient is not in its bucket");
    bucket.offsets.push_back(gradient.storage_offset() - buffer.storage_offset());
    is_even = is_even && bucket.offsets.back() % unit == 0 && parameter.is_non_overlapping_and_dense() && parameter.strides() == gradient.strides();
  }
  if (is_even) {
    const int64_t share = bucket.numel / ranks;
    bucket.begin = group_->getRank() * share;
    bucket.end = bucket.begin + share;
  }
  return buckets_.emplace_back(std::move(bucket));
}

c10::intrusive_ptr<c10d::Work> BucketShares::reduce(c10d::GradBucket& gradients) {
  const Bucket& bucket = learn(gradients);
  at::Tensor buffer = gradients.getBuffer();
  // Gloo's reduce-scatter has no future, which the Reducer waits for.
  if (!bucket.is_divided() || buffer.is_cpu()) {
    std::vector<at::Tensor> sent{buffer};
    return group_->allreduce(sent);
  }
  at::Tensor own = buffer.slice(0, bucket.begin, bucket.end);
  return group_->_reduce_scatter_base(own, buffer);
}

double BucketShares::divided() const {
  int64_t divided = 0, all = 0;
  for (const Bucket& bucket : buckets_) {
    all += bucket.numel;
    if (bucket.is_divided()) divided += bucket.numel;
  }
  return static_cast<double>(divided) / static_cast<double>(all);
}

void BucketShares::place_parameters() {
  memory_.allocate([&] {
    for (const Bucket& bucket : buckets_) {
      parameters_.push_back(bucket.is_divided() ? torch::empty({bucket.numel}, bucket.parameters.front().options().requires_grad(false)) : at::Tensor());
    }
  });
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (!buckets_[i].is_divided()) continue;
    for (size_t k = 0; k < buckets_[i].parameters.size(); ++k) {
      at::Tensor& parameter = buckets_[i].parameters[k];
      parameter.set_data(view_of(parameters_[i], parameter, buckets_[i].offsets[k]).copy_(parameter.detach()));
    }
  }
}

at::Tensor BucketShares::place(const Bucket& bucket, const std::vector<at::Tensor*>& tensors) {
  at::Tensor memory;
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (tensors[k] == nullptr || !tensors[k]->defined()) continue;
    at::Tensor& tensor = *tensors[k];
    if (!memory.defined()) memory = torch::zeros({bucket.numel}, tensor.options());
    tensor = view_of(memory, bucket.parameters[k], bucket.offsets[k]).copy_(tensor);
  }
  return memory;
}

void BucketShares::gather(const Bucket& bucket, const at::Tensor& memory) {
  if (!bucket.is_divided() || !memory.defined()) return;
  at::Tensor all = memory, own = memory.slice(0, bucket.begin, bucket.end);
  gathering_.push_back(group_->_allgather_base(all, own));
}

void BucketShares::wait() {
  for (const auto& work : gathering_) work->wait();
  gathering_.clear();
}

}  // namespace cxxrun
