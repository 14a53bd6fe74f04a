// Attention whose query heads share keys and values in groups (Ainslie et al., "GQA", 2023), float32 inside. A group's queries stand
// under each other, so keys and values are not repeated for them. In fast mode one of SDPA's kernels that never write the scores down.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

struct KeyValue {
  at::Tensor key, value;  // [B, L, kv_heads, head_dim]; keys are rotated
};

// Who sees whom, made once for all layers.
class AttentionMask {
 public:
  // bool [B or 1, L or 1, S]
  explicit AttentionMask(at::Tensor visible) : visible_(std::move(visible)) {}

  const at::Tensor& visible() const { return visible_; }
  // [B or 1, 1, L * group or 1, S] of `dtype`, row l * group + g: 0, or a number that leaves a score no weight. Aligned for 16-byte loads.
  const at::Tensor& bias(int64_t group, at::ScalarType dtype) const;

 private:
  at::Tensor visible_;
  mutable at::Tensor bias_;
};

// query [B, L, kv_heads, group, head_dim]. A query that sees nothing gets the mean of all values. -> the same in the values' dtype; in fast
// mode in the query's, and lying in memory as rotate_heads() lays out queries.
at::Tensor grouped_attention(const at::Tensor& query, const KeyValue& memory, const AttentionMask& mask);

}  // namespace vla
