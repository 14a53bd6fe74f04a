// Flow matching's input and loss in one pass over memory each (flow_element.hpp), for fast mode. Actions and velocities are of one dtype,
// noise and time of float32 (float64 with float64).
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/policies/nn/flow_element.hpp"

namespace vla {

// actions [B, chunk, action_dim], noise [B, chunk, dim], time [B] -> time * noise + (1 - time) * actions, [B, chunk, dim] in the actions'
// dtype. No gradient.
at::Tensor flow_input(const at::Tensor& actions, const at::Tensor& noise, const at::Tensor& time);

// Sums of (noise - actions - velocity)², velocity [B, chunk, dim], is_pad bool [B, chunk], weight float32 [B] -> float [kFlowSums], as
// FlowSum names them. Gradient for the velocity.
at::Tensor flow_loss_sums(const at::Tensor& velocity, const at::Tensor& actions, const at::Tensor& noise, const at::Tensor& is_pad, const at::Tensor& weight);

}  // namespace vla
