// The dropouts of a transformer's layers together with what stands beside them, in one pass each way (worker/cuda/transformer_dropout.hpp):
// the masks of StepRandom::dropout with the rows in dimension 1, drawn again in backward or seen from what came out. `random` null: no
// dropout. Widths must be multiples of four.
#pragma once

#include <torch/nn/modules/normalization.h>

#include "worker/policies/nn/counter_random.hpp"

namespace vla {

// dropout(relu(x)), x float [S, B, width].
at::Tensor relu_dropout(const at::Tensor& x, const StepRandom* random, double p, uint32_t stream);

// norm(x + dropout(y)), float [S, B, width], in the dtype of the norm's parameters.
at::Tensor add_dropout_norm(const at::Tensor& x, const at::Tensor& y, const torch::nn::LayerNormImpl& norm, const StepRandom* random, double p,
                            uint32_t stream);

}  // namespace vla
