// Rotary position embedding (Su et al., "RoFormer", 2021) as Llama and Gemma apply it: the first half of a head is rotated against the
// second. Computed in float32 (float64 for float64), given back in the input's dtype. In fast mode in one pass over memory each way.
#pragma once

#include <ATen/core/Tensor.h>

namespace vla {

struct RotaryTable {
  at::Tensor cos, sin;  // float32 [B, L, 1, head_dim / 2]
};

// positions int64 [B, L]
RotaryTable rotary_table(const at::Tensor& positions, int64_t head_dim, double base);

at::Tensor rotate(const at::Tensor& x, const RotaryTable& table);  // [B, L, heads, head_dim] -> the same

struct Rotated {
  at::Tensor query;  // [B, L, kv_heads, group, head_dim]; in fast mode it lies in memory as [B, L, group, kv_heads, head_dim]
  at::Tensor key;  // [B, L, kv_heads, head_dim], undefined as the input
};

// query [B, L, kv_heads * group, head_dim]; key [B, L, kv_heads, head_dim] or undefined
Rotated rotate_heads(const at::Tensor& query, const at::Tensor& key, const RotaryTable& table, int64_t kv_heads);

}  // namespace vla
