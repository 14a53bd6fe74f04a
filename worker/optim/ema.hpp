// Exponential moving average of a model's weights, with the decay of diffusers' EMAModel or of diffusion_policy. Owns a
// float32 average (float64 of a float64 model) of every trainable parameter; what is copied instead of averaged (frozen
// parameters, buffers, diffusion_policy's batch norms) is the model's own. Every rank may keep one: no communication.
// Used by one thread. State that does not fit throws Error.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "worker/checkpoint/safetensors.hpp"
#include "worker/optim/options.hpp"
#include "worker/optim/update_table.hpp"

namespace vla {

// Share of the old average in the update after step `step` = 1, 2, …
double ema_decay(const EmaOptions& options, int64_t step);

class Ema {
 public:
  // Begins with the model's present weights.
  Ema(const torch::nn::Module& model, const EmaOptions& options);

  // After the optimizer's step number `step` = 1, 2, … In a captured graph update() takes the decay from the device, which
  // set_decay_for() writes there before every replay.
  void set_decay_for(int64_t step);
  void update();
  void update(int64_t step) { set_decay_for(step), update(); }

  // For an optimizer whose pass over the parameters does update() as well: on GPUs, and in fast mode (at construction).
  bool in_one_pass() const { return weight_.defined(); }
  const torch::Tensor& weight_on_device() const { return weight_; }  // float32 scalar: 1 - decay
  std::vector<UpdateRow> rows() const;  // of all parameters, without gradients
  std::map<const void*, torch::Tensor> by_parameter() const;  // the averages, by the address of the parameters' data

  torch::Tensor* average_of(const torch::Tensor& parameter);  // that itself, to be moved; null: it has none

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
  double decay_ = 0;
  torch::Tensor weight_;  // undefined: the host's decay is used
  UpdateTable table_;
};

}  // namespace vla
