#include "worker/policies/nn/rotary.hpp"

#include <optional>

#include <torch/torch.h>

#include "worker/cuda/head_math.hpp"
#include "worker/policies/nn/device_kernel.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/precision.hpp"

namespace vla {
namespace {

// Rows of whole heads one after another, the same distance apart.
at::Tensor as_rows_of_heads(const at::Tensor& x) {
  const bool has_rows = x.stride(3) == 1 && x.stride(2) == x.size(3) && (x.size(0) == 1 || x.stride(0) == x.size(1) * x.stride(1));
  return has_rows ? x : x.contiguous();
}

RotateHeads describe_rotation(const at::Tensor& input, const at::Tensor& output, const RotaryTable& table, int64_t group) {
  const int64_t half = input.size(3) / 2;
  return {.input = input.const_data_ptr(), .output = output.mutable_data_ptr(), .cos = table.cos.const_data_ptr<float>(), .sin = table.sin.const_data_ptr<float>(),
          .input_stride = input.stride(1), .rows = input.size(0) * input.size(1), .table_rows = table.cos.numel() / table.cos.size(-1),
          .heads = static_cast<int>(input.size(2)), .group = static_cast<int>(group), .half = static_cast<int>(half),
          .wide = half % kChunk == 0 && input.stride(1) % kChunk == 0 && reinterpret_cast<uintptr_t>(input.const_data_ptr()) % 16 == 0};
}

void run_rotation(const RotateHeads& first, const RotateHeads& second, const at::Tensor& like) {
  run_kernel(
      like, [&](cudaStream_t stream) { return rotate_heads_cuda(first, second, element_of(like), stream); },
      [&](auto element) {
        for (const RotateHeads& of : {first, second}) {
          if (of.wide) {
            for_each(of.pairs() / kChunk, [&](int64_t chunk) { rotate_pairs<decltype(element), kChunk>(of, chunk * kChunk); });
          } else {
            for_each(of.pairs(), [&](int64_t pair) { rotate_pairs<decltype(element), 1>(of, pair); });
          }
        }
      });
}

// Queries with a group and, if they are defined, keys without one.
struct RotateHeadsFunction : torch::autograd::Function<RotateHeadsFunction> {
  static torch::autograd::variable_list rotate_all(const at::Tensor& query, const at::Tensor& key, const RotaryTable& table, int64_t group, bool backward) {
    const at::Tensor queries = as_rows_of_heads(query), rotated = at::empty(query.sizes(), query.options());
    RotateHeads first = describe_rotation(queries, rotated, table, group), second;
    first.backward = backward;
    at::Tensor keys, rotated_keys;
    if (key.defined()) {
      keys = as_rows_of_heads(key);
      rotated_keys = at::empty(key.sizes(), key.options());
      second = describe_rotation(keys, rotated_keys, table, 1);
      second.backward = backward;
    }
    run_rotation(first, second, query);
    return {rotated, rotated_keys};
  }

  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& query,
                                                const std::optional<at::Tensor>& key, const at::Tensor& cos, const at::Tensor& sin, int64_t group) {
    context->save_for_backward({cos, sin});
    context->saved_data["group"] = group;
    auto rotated = rotate_all(query, key.value_or(at::Tensor()), {cos, sin}, group, false);
    if (!key) rotated.pop_back();
    return rotated;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor key = gradients.size() > 1 ? gradients[1] : at::Tensor();
    const auto rotated = rotate_all(gradients[0], key, {saved[0], saved[1]}, context->saved_data["group"].toInt(), true);
    return {rotated[0], rotated[1], {}, {}, {}};
  }
};

}  // namespace

RotaryTable rotary_table(const at::Tensor& positions, int64_t head_dim, double base) {
  const at::Tensor exponents = at::arange(head_dim / 2, positions.options().dtype(at::kFloat)) * (2.0 / static_cast<double>(head_dim));
  const at::Tensor angles = (positions.to(at::kFloat).unsqueeze(-1) / at::pow(base, exponents)).unsqueeze(2);
  return {angles.cos(), angles.sin()};
}

at::Tensor rotate(const at::Tensor& x, const RotaryTable& table) {
  const auto halves = at_least_float(x).chunk(2, -1);
  return at::cat({halves[0] * table.cos - halves[1] * table.sin, halves[1] * table.cos + halves[0] * table.sin}, -1).to(x.scalar_type());
}

Rotated rotate_heads(const at::Tensor& query, const at::Tensor& key, const RotaryTable& table, int64_t kv_heads) {
  const int64_t group = query.size(2) / kv_heads;
  const bool one_dtype = !key.defined() || key.scalar_type() == query.scalar_type();
  if (!fast_mode() || !one_dtype || (query.is_cuda() && query.scalar_type() == at::kDouble)) {
    return {rotate(query, table).unflatten(2, {kv_heads, group}), key.defined() ? rotate(key, table) : key};
  }
  const auto rotated = RotateHeadsFunction::apply(query, if_defined(key), table.cos, table.sin, group);
  return {rotated[0].view({query.size(0), query.size(1), group, kv_heads, query.size(3)}).transpose(2, 3), key.defined() ? rotated[1] : key};
}

}  // namespace vla
