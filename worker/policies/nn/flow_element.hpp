// Arithmetic of flow matching (Lipman et al., 2023), the same on CPU and CUDA: the point between actions and noise at a time, 1 being
// noise, and the squared error of the velocity between them, with its gradient.
#pragma once

#include "worker/cuda/team.hpp"

namespace vla {

// Actions have action_dim numbers, everything else dim; those behind an action's are zeros. Numbers of noise and time are Real<T>.
struct FlowMatch {
  const void* actions = nullptr;  // [rows, chunk, action_dim]
  const void* noise = nullptr;  // [rows, chunk, dim]
  int64_t rows = 0, chunk = 0, action_dim = 0, dim = 0;

  VLA_HOST_DEVICE int64_t elements_of_row() const { return chunk * dim; }
  template <class T>
  VLA_HOST_DEVICE Real<T> action(int64_t element) const {
    const int64_t column = element % dim;
    return column < action_dim ? static_cast<Real<T>>(static_cast<const T*>(actions)[element / dim * action_dim + column]) : 0;
  }
};

struct FlowBetween : FlowMatch {
  const void* time = nullptr;  // [rows]
  void* between = nullptr;  // [rows, chunk, dim]
};

template <class T>
VLA_HOST_DEVICE void flow_between(const FlowBetween& of, int64_t element) {
  using R = Real<T>;
  const R time = static_cast<const R*>(of.time)[element / of.elements_of_row()], noise = static_cast<const R*>(of.noise)[element];
  static_cast<T*>(of.between)[element] = static_cast<T>(time * noise + (1 - time) * of.action<T>(element));
}

// Which errors a sum is over: those of actions that are in their episode, of all actions, and of the numbers behind actions too.
enum FlowSum { kValidActions, kActions, kEverything, kFlowSums };

struct FlowLoss : FlowMatch {
  const void* velocity = nullptr;  // [rows, chunk, dim]
  const bool* is_pad = nullptr;  // [rows, chunk]
  const float* weight = nullptr;  // [rows]

  // The error of an element, and in which sums it counts.
  template <class T>
  VLA_HOST_DEVICE Real<T> error(int64_t element) const {
    using R = Real<T>;
    return static_cast<const R*>(noise)[element] - action<T>(element) - static_cast<R>(static_cast<const T*>(velocity)[element]);
  }
  VLA_HOST_DEVICE float share(int sum, int64_t element) const {
    const bool is_action = element % dim < action_dim;
    if (sum != kEverything && !is_action) return 0;
    return sum == kValidActions && is_pad[element / dim] ? 0 : weight[element / elements_of_row()];
  }
};

// Of one row: the sums of its squared errors, by a team, in its order.
template <class T, class Team>
VLA_HOST_DEVICE void flow_sums(const Team& team, const FlowLoss& of, int64_t row, Real<T>* sums) {
  for (int sum = 0; sum < kFlowSums; ++sum) sums[sum] = 0;
  const int64_t begin = row * of.elements_of_row(), end = begin + of.elements_of_row();
  for (int64_t element = begin + team.lane(); element < end; element += team.lanes()) {
    const Real<T> error = of.error<T>(element);
    for (int sum = 0; sum < kFlowSums; ++sum) sums[sum] += error * error * of.share(sum, element);
  }
  for (int sum = 0; sum < kFlowSums; ++sum) sums[sum] = team.sum(sums[sum]);
}

// `scales` [kFlowSums]: the gradient that reaches each sum.
template <class T>
VLA_HOST_DEVICE void flow_gradient(const FlowLoss& of, const Real<T>* scales, int64_t element, T* gradient) {
  Real<T> scale = 0;
  for (int sum = 0; sum < kFlowSums; ++sum) scale += scales[sum] * of.share(sum, element);
  gradient[element] = static_cast<T>(-2 * scale * of.error<T>(element));
}

}  // namespace vla
