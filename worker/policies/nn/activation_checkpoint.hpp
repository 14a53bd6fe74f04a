// Trades time for memory: a segment of the network keeps only its inputs, and backward computes its activations again. Sound with
// DistributedDataParallel, unused-parameter search included: parameters are inputs of the segment's node in the graph, so their
// gradients arrive through it as without checkpointing (unlike a backward inside backward, which the Reducer's search cannot see).
// The function must be deterministic (randomness is counter-based) and must not change its inputs or the module's state. Autocast
// is restored for the recomputation. No second derivatives. Any thread.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace vla {

// From the inputs to the output. Called again in backward, perhaps on another thread: captures by value what it needs, tensors
// without a gradient among it.
using Segment = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// segment(inputs). `inputs` (all defined) and `parameters` are all that gradients flow to; parameters that require none are
// skipped. Without gradient mode this is a plain call.
at::Tensor checkpoint(Segment segment, std::vector<at::Tensor> inputs, const std::vector<at::Tensor>& parameters);

// The same with the parameters of `layer`, or a plain call if not `enabled`.
at::Tensor checkpoint_if(bool enabled, const torch::nn::Module& layer, Segment segment, std::vector<at::Tensor> inputs);

}  // namespace vla
