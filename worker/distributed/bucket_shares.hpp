// How ranks share an optimizer's work ("ZeRO stage 1"): of a bucket of gradients a rank gets the sums of its share alone, a contiguous part;
// it updates these parameters and gets the others from their ranks. Half the bytes travel beside backward, the other half beside the update.
// For that, parameters lie in memory of their own that is laid out like the bucket, and so may what an optimizer keeps of them. A bucket
// that cannot be divided evenly, or would place parameters at odd addresses, is summed and updated on all ranks. One thread.
#pragma once

#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "worker/distributed/symmetric_memory.hpp"

namespace cxxrun {

class BucketShares {
 public:
  struct Bucket {
    std::vector<at::Tensor> parameters;
    std::vector<int64_t> offsets;  // where their gradients stand, in elements
    int64_t numel = 0;
    int64_t begin = 0, end = 0;  // this rank's share; all of it: the bucket is not divided
    bool is_divided() const { return end - begin < numel; }
  };

  explicit BucketShares(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)), memory_(*group_) {}

  // Buckets stay as they are from here on.
  void open() { is_open_ = true; }
  bool is_open() const { return is_open_; }
  // Sums a complete bucket: this rank's share, or all of it. The first time, buckets are learned, in the order of their numbers.
  c10::intrusive_ptr<c10d::Work> reduce(c10d::GradBucket& gradients);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  double divided() const;  // part of all elements that is in divided buckets
  bool is_main() const { return group_->getRank() == 0; }

  // Once, on all ranks: moves the parameters of divided buckets. Their gradients stay.
  void place_parameters();
  bool is_placed() const { return !parameters_.empty(); }
  // Memory for `tensors`, one for each parameter of the bucket and laid out as it is, undefined where there is none. Replaces them by
  // their copies there.
  static at::Tensor place(const Bucket& bucket, const std::vector<at::Tensor*>& tensors);

  // Begins to bring the other ranks' shares into memory that place() made; behind what is queued on the current stream.
  void gather(const Bucket& bucket, const at::Tensor& memory);
  void gather_parameters(size_t bucket) { gather(buckets_[bucket], parameters_[bucket]); }  // nothing for one that is not divided
  void wait();  // for all of that; the current stream does, not the host

 private:
  const Bucket& learn(c10d::GradBucket& gradients);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  bool is_open_ = false;
  SymmetricMemory memory_;  // of the parameters
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> parameters_;  // by bucket: [numel]; undefined where it is not divided
  std::vector<c10::intrusive_ptr<c10d::Work>> gathering_;
};

}  // namespace cxxrun
