// Weights of convolutions as images with channels last want them: otherwise weight gradients have other strides than weights, and DDP
// copies each of them.
#pragma once

#include <torch/nn/modules/conv.h>

namespace vla {

// (contiguous() would leave 1x1 kernels with the strides they have, which count as both layouts.)
inline void store_channels_last(torch::nn::Conv2dImpl& layer) {
  layer.weight.set_data(at::empty_like(layer.weight, {}, at::MemoryFormat::ChannelsLast).copy_(layer.weight.detach()));
}

}  // namespace vla
