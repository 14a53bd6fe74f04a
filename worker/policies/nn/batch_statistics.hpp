// What modules that couple the rows of a batch are told about it, so that their statistics are those of the global batch: how to add
// up over ranks (given by the trainer, so that policies do not know about process groups) and which rows count.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace vla {

// Sums a tensor over all ranks, in place; a collective, so every rank calls it in the same order. Empty: there is one rank.
using AllReduceSum = std::function<void(at::Tensor)>;

struct BatchStatistics {
  at::Tensor weight;  // float [B]: 1, or 0 for rows that only pad the micro-batch; undefined = every row counts
  AllReduceSum all_reduce_sum;
};

}  // namespace vla
