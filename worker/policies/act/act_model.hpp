// ACT's network: VAE encoder, image encoder, transformer encoder and decoder, under LeRobot's parameter names. No loss, no noise of
// its own: the latent is given. Activations are sequence-first; `random` null means no dropout. Weights are drawn from LibTorch's
// default CPU generator in LeRobot's order, so one seed gives the same weights in both.
#pragma once

#include <map>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "worker/policies/act/act_options.hpp"
#include "worker/policies/nn/resnet.hpp"
#include "worker/policies/nn/transformer.hpp"

namespace vla {

struct ActMemory {
  at::Tensor tokens;  // [S, B, D]: latent, robot state, environment state, then every camera's pixels
  at::Tensor position;  // [S, 1, D]
};

class ActModel : public torch::nn::Module {
 public:
  ActModel(const ActOptions& options, const PolicyFeatures& features);

  // The VAE's distribution of the latent given the actions, [B, 2 * latent]: means, then logarithms of variances.
  at::Tensor posterior(const Batch& batch, const StepRandom* random);
  // latent [B, latent] or undefined for zeros.
  ActMemory encode(const Batch& batch, const at::Tensor& latent, const StepRandom* random);
  at::Tensor decode(const ActMemory& memory, const StepRandom* random);  // [chunk, B, D]
  // encode, decode and the action head: normalized actions [B, chunk, A].
  at::Tensor forward(const Batch& batch, const at::Tensor& latent, const StepRandom* random);

  // Backward recomputes the layers of the transformers and the blocks of the image encoder.
  void set_activation_checkpointing(bool on);

  const std::shared_ptr<ResNet18>& backbone() { return backbone_; }  // null without cameras

 private:
  std::vector<at::Tensor> image_features(const Batch& batch);  // a camera: [B, 512, h, w]
  const at::Tensor& pixel_position(const at::Tensor& features);

  ActOptions options_;
  std::vector<std::string> cameras_;
  std::string environment_key_;
  int64_t action_dim_;
  // Tables by (height, width), on the device and in the dtype of their last use. Not part of the state dict.
  std::map<std::pair<int64_t, int64_t>, at::Tensor> pixel_positions_;

  std::shared_ptr<TransformerEncoder> vae_encoder_, encoder_;
  std::shared_ptr<TransformerDecoder> decoder_;
  std::shared_ptr<ResNet18> backbone_;
  at::Tensor vae_encoder_pos_enc_;  // [1, 1 or 2 + chunk, D]
  torch::nn::Embedding vae_encoder_cls_embed_{nullptr}, encoder_1d_feature_pos_embed_{nullptr}, decoder_pos_embed_{nullptr};
  torch::nn::Linear vae_encoder_robot_state_input_proj_{nullptr}, vae_encoder_action_input_proj_{nullptr},
      vae_encoder_latent_output_proj_{nullptr}, encoder_robot_state_input_proj_{nullptr}, encoder_env_state_input_proj_{nullptr},
      encoder_latent_input_proj_{nullptr}, action_head_{nullptr};
  torch::nn::Conv2d encoder_img_feat_input_proj_{nullptr};
};

}  // namespace vla
