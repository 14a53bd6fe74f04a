#include "worker/policies/act/act_model.hpp"

#include <torch/torch.h>

#include "worker/policies/nn/channels_last.hpp"
#include "worker/policies/nn/sinusoid.hpp"

namespace vla {

ActModel::ActModel(const ActOptions& options, const PolicyFeatures& features) : options_(options) {
  const ActInputs inputs = act_inputs(features);
  const int64_t dim = options.dim_model;
  action_dim_ = inputs.action->shape[0];
  for (const PolicyFeature* camera : inputs.cameras) cameras_.push_back(camera->key);
  const TransformerOptions transformer{.dim = dim, .heads = options.n_heads, .feedforward_dim = options.dim_feedforward,
                                       .dropout = options.dropout, .pre_norm = options.pre_norm,
                                       .gelu = options.feedforward_activation == "gelu"};
  const auto linear = [&](const char* name, int64_t in, int64_t out) { return register_module(name, torch::nn::Linear(in, out)); };
  const auto embedding = [&](const char* name, int64_t rows) { return register_module(name, torch::nn::Embedding(rows, dim)); };

  if (options.use_vae) {
    vae_encoder_ = register_module(
        "vae_encoder", std::make_shared<TransformerEncoder>(transformer, options.n_vae_encoder_layers, "vae_encoder"));
    vae_encoder_cls_embed_ = embedding("vae_encoder_cls_embed", 1);
    if (inputs.robot_state != nullptr) {
      vae_encoder_robot_state_input_proj_ = linear("vae_encoder_robot_state_input_proj", inputs.robot_state->shape[0], dim);
    }
    vae_encoder_action_input_proj_ = linear("vae_encoder_action_input_proj", action_dim_, dim);
    vae_encoder_latent_output_proj_ = linear("vae_encoder_latent_output_proj", dim, 2 * options.latent_dim);
    const int64_t tokens = 1 + (inputs.robot_state != nullptr ? 1 : 0) + options.chunk_size;
    vae_encoder_pos_enc_ = register_buffer("vae_encoder_pos_enc", sinusoid_table(tokens, dim).unsqueeze(0));
  }
  if (!cameras_.empty()) backbone_ = register_module("backbone", std::make_shared<ResNet18>());
  encoder_ = register_module("encoder", std::make_shared<TransformerEncoder>(transformer, options.n_encoder_layers, "encoder"));
  decoder_ = register_module("decoder", std::make_shared<TransformerDecoder>(transformer, options.n_decoder_layers, "decoder"));
  int64_t vector_tokens = 1;
  if (inputs.robot_state != nullptr) {
    encoder_robot_state_input_proj_ = linear("encoder_robot_state_input_proj", inputs.robot_state->shape[0], dim);
    ++vector_tokens;
  }
  if (inputs.environment_state != nullptr) {
    environment_key_ = inputs.environment_state->key;
    encoder_env_state_input_proj_ = linear("encoder_env_state_input_proj", inputs.environment_state->shape[0], dim);
    ++vector_tokens;
  }
  encoder_latent_input_proj_ = linear("encoder_latent_input_proj", options.latent_dim, dim);
  if (backbone_) {
    encoder_img_feat_input_proj_ = register_module(
        "encoder_img_feat_input_proj", torch::nn::Conv2d(torch::nn::Conv2dOptions(ResNet18::kChannels, dim, 1)));
    store_channels_last(*encoder_img_feat_input_proj_);
  }
  encoder_1d_feature_pos_embed_ = embedding("encoder_1d_feature_pos_embed", vector_tokens);
  decoder_pos_embed_ = embedding("decoder_pos_embed", options.chunk_size);
  action_head_ = linear("action_head", dim, action_dim_);
  xavier_init(*encoder_);
  xavier_init(*decoder_);
}

void ActModel::set_activation_checkpointing(bool on) {
  for (const auto& encoder : {vae_encoder_, encoder_}) {
    if (encoder) encoder->checkpoint_layers(on);
  }
  decoder_->checkpoint_layers(on);
  if (backbone_) backbone_->checkpoint_blocks(on);
}

at::Tensor ActModel::posterior(const Batch& batch, const StepRandom* random) {
  const at::Tensor& is_pad = batch.at("action_is_pad");
  std::vector<at::Tensor> tokens{vae_encoder_cls_embed_->weight.expand({1, batch.rows(), -1})};
  if (vae_encoder_robot_state_input_proj_) {
    tokens.push_back(vae_encoder_robot_state_input_proj_(batch.at("observation.state")).unsqueeze(0));
  }
  const at::Tensor never_pad = at::zeros({batch.rows(), static_cast<int64_t>(tokens.size())}, is_pad.options());
  tokens.push_back(vae_encoder_action_input_proj_(batch.at("action")).transpose(0, 1));
  const at::Tensor out = vae_encoder_->forward(at::cat(tokens), vae_encoder_pos_enc_.transpose(0, 1), at::cat({never_pad, is_pad}, 1), random);
  return vae_encoder_latent_output_proj_(out[0]);
}

std::vector<at::Tensor> ActModel::image_features(const Batch& batch) {
  std::vector<at::Tensor> images;
  bool same_size = true;
  for (const std::string& key : cameras_) {
    images.push_back(batch.at(key));
    same_size &= images.back().sizes() == images.front().sizes();
  }
  // Frozen norms do not couple rows, so cameras of one size go through as one batch.
  if (same_size && images.size() > 1) return backbone_->forward(at::cat(images)).split(batch.rows());
  for (at::Tensor& image : images) image = backbone_->forward(image);
  return images;
}

const at::Tensor& ActModel::pixel_position(const at::Tensor& features) {
  const int64_t height = features.size(2), width = features.size(3);
  at::Tensor& table = pixel_positions_[{height, width}];
  if (!table.defined() || table.device() != features.device() || table.scalar_type() != features.scalar_type()) {
    table = sinusoid_grid(height, width, options_.dim_model).unsqueeze(1).to(features.options());
  }
  return table;
}

ActMemory ActModel::encode(const Batch& batch, const at::Tensor& latent, const StepRandom* random) {
  const at::Tensor& weight = encoder_latent_input_proj_->weight;
  const at::Tensor z = latent.defined() ? latent : at::zeros({batch.rows(), options_.latent_dim}, weight.options().requires_grad(false));
  std::vector<at::Tensor> tokens{encoder_latent_input_proj_(z).unsqueeze(0)};
  std::vector<at::Tensor> positions{encoder_1d_feature_pos_embed_->weight.unsqueeze(1)};
  if (encoder_robot_state_input_proj_) tokens.push_back(encoder_robot_state_input_proj_(batch.at("observation.state")).unsqueeze(0));
  if (encoder_env_state_input_proj_) tokens.push_back(encoder_env_state_input_proj_(batch.at(environment_key_)).unsqueeze(0));
  if (backbone_) {
    for (const at::Tensor& features : image_features(batch)) {
      tokens.push_back(encoder_img_feat_input_proj_(features).flatten(2).permute({2, 0, 1}));
      positions.push_back(pixel_position(features));
    }
  }
  const at::Tensor position = at::cat(positions);
  return {encoder_->forward(at::cat(tokens), position, {}, random), position};
}

at::Tensor ActModel::decode(const ActMemory& memory, const StepRandom* random) {
  const at::Tensor start = at::zeros({options_.chunk_size, memory.tokens.size(1), options_.dim_model}, memory.tokens.options());
  return decoder_->forward(start, memory.tokens, decoder_pos_embed_->weight.unsqueeze(1), memory.position, random);
}

at::Tensor ActModel::forward(const Batch& batch, const at::Tensor& latent, const StepRandom* random) {
  return action_head_(decode(encode(batch, latent, random), random)).transpose(0, 1);
}

}  // namespace vla
