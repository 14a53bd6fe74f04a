#include "worker/policies/nn/grouped_attention.hpp"

#include <cmath>
#include <limits>

#include <ATen/native/transformers/cuda/sdp_utils.h>
#include <torch/torch.h>

#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/precision.hpp"

namespace vla {
namespace {

constexpr double kUnseen = -1e30;  // far below every score, far from overflow in any dtype that is used
constexpr int64_t kAlignment = 16;  // elements

at::Tensor reference_attention(const at::Tensor& query, const KeyValue& memory, const at::Tensor& mask) {
  const int64_t rows = query.size(0), length = query.size(1), kv_heads = query.size(2), group = query.size(3), head_dim = query.size(4);
  const int64_t memory_length = memory.key.size(1);
  // [B, kv_heads, group * L, head_dim]
  const at::Tensor queries = (at_least_float(query) * std::pow(static_cast<double>(head_dim), -0.5))
                                 .permute({0, 2, 3, 1, 4})
                                 .reshape({rows, kv_heads, group * length, head_dim});
  at::Tensor scores = at_least_float(at::matmul(queries, at_least_float(memory.key).permute({0, 2, 3, 1})));  // autocast gives 16 bits
  // Not minus infinity: its softmax would be NaN in a row that sees nothing.
  scores = scores.view({rows, kv_heads, group, length, memory_length})
               .masked_fill(mask.logical_not().view({mask.size(0), 1, 1, mask.size(1), memory_length}), std::numeric_limits<float>::lowest());
  const at::Tensor weights = scores.softmax(-1).to(memory.value.scalar_type()).view({rows, kv_heads, group * length, memory_length});
  return at::matmul(weights, memory.value.transpose(1, 2)).view({rows, kv_heads, group, length, head_dim}).permute({0, 3, 1, 2, 4});
}

// query [B, H, R, d], key and value [B, H, S, d], bias as AttentionMask gives it
at::Tensor biased_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& bias) {
  // The kernels with a bias by name: which one scaled_dot_product_attention takes for it depends on the version and the card.
  if (query.is_cuda() && query.size(3) % 8 == 0) {
    const bool with_gradient = at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
    const at::Tensor wide = bias.expand({query.size(0), query.size(1), query.size(2), key.size(2)});
    if (sdp::can_use_cudnn_attention({query, key, value, wide, /*dropout=*/0, /*is_causal=*/false, /*enable_gqa=*/false}, /*debug=*/false)) {
      return std::get<0>(at::_scaled_dot_product_cudnn_attention(query, key, value, wide, with_gradient));
    }
    return std::get<0>(at::_scaled_dot_product_efficient_attention(query, key, value, wide, with_gradient));
  }
  return at::scaled_dot_product_attention(query, key, value, bias);
}

}  // namespace

const at::Tensor& AttentionMask::bias(int64_t group, at::ScalarType dtype) const {
  if (bias_.defined() && bias_.scalar_type() == dtype) return bias_;
  const int64_t seen = visible_.size(2), padding = (kAlignment - seen % kAlignment) % kAlignment;
  at::Tensor rows = at::constant_pad_nd(visible_.logical_not(), {0, padding}).to(dtype) * kUnseen;
  if (rows.size(1) > 1) rows = rows.unsqueeze(2).expand({-1, -1, group, -1}).flatten(1, 2);
  bias_ = rows.unsqueeze(1).slice(3, 0, seen);
  return bias_;
}

at::Tensor grouped_attention(const at::Tensor& query, const KeyValue& memory, const AttentionMask& mask) {
  if (!fast_mode() || (query.is_cuda() && query.scalar_type() == at::kDouble)) return reference_attention(query, memory, mask.visible());
  const int64_t rows = query.size(0), length = query.size(1), kv_heads = query.size(2), group = query.size(3), head_dim = query.size(4);
  const at::ScalarType dtype = query.scalar_type();
  const at::Tensor queries = query.permute({0, 2, 1, 3, 4}).reshape({rows, kv_heads, length * group, head_dim});
  return biased_attention(queries, memory.key.to(dtype).transpose(1, 2), memory.value.to(dtype).transpose(1, 2), mask.bias(group, dtype))
      .transpose(1, 2)
      .unflatten(1, {length, group})
      .transpose(2, 3);
}

}  // namespace vla
