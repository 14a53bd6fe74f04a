// Each kernel of worker/cuda as policies use it, beside the operations that it stands for, at the sizes of a training.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

namespace vla {

using Tensors = std::vector<at::Tensor>;

struct Work {
  Tensors inputs;  // those that require a gradient get one
  std::function<Tensors()> forward;
  int64_t bytes = 0;  // that cross the memory; 0 = inputs, outputs and gradients
};

struct Block {
  std::string name;
  std::function<Work(bool fast)> make;  // and its work run in that mode
  bool is_memory_bound = true;
};

// `options`: device and dtype of numbers that no block needs otherwise.
std::vector<Block> kernel_blocks(int64_t rows, const at::TensorOptions& options);

}  // namespace vla
