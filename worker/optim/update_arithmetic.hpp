// The arithmetic of one pass over a parameter: clip, Adam or AdamW, rounding to bfloat16, averaging, clearing the gradient. Shared word
// for word by the CPU loop and the CUDA kernel. Plain C++, no Torch. Formulas and their order are those of PyTorch 2.11's fused Adam
// (ATen/native/cuda/fused_adam_utils.cuh) and lerp, in float32.
#pragma once

#include <cmath>
#include <cstdint>

#include "worker/cuda/pack.hpp"

namespace vla {

// In what a row's numbers are kept: parameter and gradient, then master and moments.
enum class UpdateTypes : uint8_t { kFloat32, kBFloat16WithFloat32State, kBFloat16 };

// One parameter; null: there is none. All pointers but `lr` and `step` are to `numel` elements that lie one after another in the same order.
struct UpdateRow {
  void* parameter = nullptr;
  void* gradient = nullptr;  // without one the parameter and its moments stay
  void* master = nullptr;  // what is updated: the parameter itself unless it has float32 state and is not float32
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  float* step = nullptr;  // scalar: updates so far
  const float* lr = nullptr;  // scalar
  float* average = nullptr;  // float32
  int64_t numel = 0;
  UpdateTypes types = UpdateTypes::kFloat32;
  bool is_aligned = false;  // every pointer to the bytes of update_lanes(types) elements
};

// What a block of threads works on: elements of a row, none beyond the next multiple of kUpdateChunk.
struct UpdateChunk {
  int64_t row = 0;
  int64_t first = 0, end = 0;
  bool in_norm = true;  // of all gradients; else another rank counts them
};
constexpr int64_t kUpdateChunk = 8192;

// Elements that are read and written at once: 16 bytes of the state.
VLA_HOST_DEVICE constexpr int update_lanes(UpdateTypes types) { return types == UpdateTypes::kBFloat16 ? 8 : 4; }

struct UpdateRule {
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  bool decoupled = true;  // AdamW's weight decay
  bool clears_gradients = false;
  // Scalars on the device, read when the kernel runs. Null: 1, no, nothing is averaged.
  const float* clip_factor = nullptr;
  const float* skip = nullptr;  // not 0: parameters and moments stay as they are
  const float* average_weight = nullptr;  // share of the parameter in its new average; 1 copies it
};

// The same for all elements of a row.
struct UpdateFactors {
  bool updates;
  float clip, lr, step_size, bias_correction2_sqrt, average_weight;
};

VLA_HOST_DEVICE inline UpdateFactors update_factors(const UpdateRule& rule, const UpdateRow& row) {
  UpdateFactors f{false, 1, 0, 0, 1, 0};
  if (row.average != nullptr && rule.average_weight != nullptr) f.average_weight = *rule.average_weight;
  f.updates = row.gradient != nullptr && (rule.skip == nullptr || *rule.skip == 0);
  if (!f.updates) return f;
  if (rule.clip_factor != nullptr) f.clip = *rule.clip_factor;
  f.lr = *row.lr;
  const float step = *row.step;
  f.step_size = f.lr / (1 - std::pow(rule.beta1, step));
  f.bias_correction2_sqrt = std::sqrt(1 - std::pow(rule.beta2, step));
  return f;
}

VLA_HOST_DEVICE inline float clip_factor_of(float norm, float limit) {
  const float factor = limit / (norm + 1e-6f);
  return factor < 1 ? factor : 1;
}

VLA_HOST_DEVICE inline bool is_finite(float x) { return std::fabs(x) <= 3.402823466e+38f; }

VLA_HOST_DEVICE inline void adam_element(const UpdateRule& rule, const UpdateFactors& f, float grad, float& parameter, float& exp_avg,
                                         float& exp_avg_sq) {
  grad *= f.clip;
  if (rule.weight_decay != 0) {
    if (rule.decoupled) {
      parameter -= f.lr * rule.weight_decay * parameter;
    } else {
      grad += parameter * rule.weight_decay;
    }
  }
  exp_avg = std::fma(rule.beta1, exp_avg, std::fma(-rule.beta1, grad, grad));
  exp_avg_sq = std::fma(rule.beta2, exp_avg_sq, std::fma(-rule.beta2, grad * grad, grad * grad));
  parameter -= f.step_size * exp_avg / (std::sqrt(exp_avg_sq) / f.bias_correction2_sqrt + rule.eps);
}

VLA_HOST_DEVICE inline float averaged_element(float average, float parameter, float weight) {
  if (weight == 1) return parameter;
  return weight < 0.5f ? average + weight * (parameter - average) : parameter - (parameter - average) * (1 - weight);
}

// `count` elements, held in registers between load and store. T: of parameter and gradient, S: of master and moments.
template <class T, class S, int count>
VLA_HOST_DEVICE void update_elements(const UpdateRule& rule, const UpdateRow& row, const UpdateFactors& f, int64_t first) {
  T *parameters = static_cast<T*>(row.parameter) + first, *gradients = static_cast<T*>(row.gradient) + first;
  Pack<T, count> rounded = {};
  if (f.updates) {
    S *masters = static_cast<S*>(row.master) + first, *exp_avgs = static_cast<S*>(row.exp_avg) + first;
    S* exp_avg_sqs = static_cast<S*>(row.exp_avg_sq) + first;
    const auto gradient = load<count>(gradients);
    auto master = load<count>(masters), exp_avg = load<count>(exp_avgs), exp_avg_sq = load<count>(exp_avg_sqs);
    for (int i = 0; i < count; ++i) {
      float value = static_cast<float>(master.at[i]), mean = static_cast<float>(exp_avg.at[i]), square = static_cast<float>(exp_avg_sq.at[i]);
      adam_element(rule, f, static_cast<float>(gradient.at[i]), value, mean, square);
      master.at[i] = static_cast<S>(value);
      exp_avg.at[i] = static_cast<S>(mean);
      exp_avg_sq.at[i] = static_cast<S>(square);
      rounded.at[i] = static_cast<T>(value);
    }
    store(masters, master);
    store(exp_avgs, exp_avg);
    store(exp_avg_sqs, exp_avg_sq);
    if (row.parameter != row.master) store(parameters, rounded);
  } else if (f.average_weight != 0) {
    rounded = load<count>(parameters);
  }
  if (row.gradient != nullptr && rule.clears_gradients) {
    Pack<T, count> zero = {};
    for (int i = 0; i < count; ++i) zero.at[i] = static_cast<T>(0.0f);
    store(gradients, zero);
  }
  if (f.average_weight != 0) {
    auto average = load<count>(row.average + first);
    for (int i = 0; i < count; ++i) average.at[i] = averaged_element(average.at[i], static_cast<float>(rounded.at[i]), f.average_weight);
    store(row.average + first, average);
  }
}

}  // namespace vla
