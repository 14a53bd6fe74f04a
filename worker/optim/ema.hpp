// Exponential moving average of a model's weights, with the decay of diffusers' EMAModel or of diffusion_policy. Owns a
// float32 average (float64 of a float64 model) of every trainable parameter; what is copied instead of averaged (frozen
// parameters, buffers, diffusion_policy's batch norms) is the model's own. Every rank may keep one: no communication.
// Used by one thread, outside of captured graphs. State that does not fit throws Error.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "worker/checkpoint/safetensors.hpp"
#include "worker/optim/options.hpp"

namespace vla {

// Share of the old average in the update after step `step` = 1, 2, …
double ema_decay(const EmaOptions& options, int64_t step);

class Ema {
 public:
  // Begins with the model's present weights.
  Ema(const torch::nn::Module& model, const EmaOptions& options);

  // After the optimizer's step number `step` = 1, 2, …
  void update(int64_t step);

  // The averages by the parameters' names: the live tensors, for the training state.
  TensorMap shadow() const;
  // The model's state_dict as an averaged model's: to save, without touching the model.
  TensorMap averaged(TensorMap state_dict) const;
  void load(const TensorMap& shadow);
  // Forgets the past: after other weights were loaded into the model.
  void restart();

  // While it lives, the model computes with, and is saved as, the average; then it is as before, bit for bit.
  class Scope {
   public:
    explicit Scope(Ema& ema);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    Ema& ema_;
    std::vector<torch::Tensor> own_;
  };

 private:
  EmaOptions options_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_, shadow_;
  bool in_scope_ = false;
};

}  // namespace vla
