// The two transformers of SmolVLA under LeRobot's parameter names: a SmolVLM, of which the first layers are used, and the action expert
// whose layers stand beside the SmolVLM's. The observation's tokens (prefix) never see the actions' (suffix), so they are computed first
// and the expert attends to their keys and values: for training as for sampling, and once for all steps of the latter.
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "worker/policies/nn/llama.hpp"
#include "worker/policies/nn/siglip.hpp"
#include "worker/policies/smolvla/smolvla_options.hpp"
#include "worker/policies/smolvla/smolvlm_config.hpp"

namespace vla {

class VlmWithExpert : public torch::nn::Module {
 public:
  VlmWithExpert(const SmolVlaOptions& options, const SmolVlmConfig& config);

  int64_t width() const { return config_.text.width; }  // of the prefix
  int64_t expert_width() const { return expert_.width; }

  // float [N, 3, H, W] in [-1, 1] -> [N, tokens, width], in two steps: the first does not learn where the vision tower is frozen, and has
  // nothing left for the second where the connector is too.
  at::Tensor embed_images(const at::Tensor& images) { return connect(see(images)); }
  at::Tensor see(const at::Tensor& images);  // -> [N, tokens, any]
  at::Tensor connect(const at::Tensor& seen);  // [..., any] -> [..., width]
  bool has_frozen_vision() const { return is_frozen(*vision_model_); }
  at::Tensor embed_tokens(const at::Tensor& tokens);  // int64 [B, L] -> [B, L, width]

  // Of every layer, for the prefix x [B, P, width]; positions int64 [B, P], visible bool [B, P, P]: who sees whom. The last layer's output
  // has no reader and is not computed.
  std::vector<KeyValue> encode(at::Tensor x, const at::Tensor& positions, const at::Tensor& visible);
  // The same of tokens that see each other and those before them, in a SmolVLM that does not learn: x [B, L, width] after `before`, the
  // memory of P tokens or empty; positions int64 [B, L], visible bool [B, P + L]. Padding tokens' own values are not the same.
  std::vector<KeyValue> encode_frozen(const at::Tensor& x, const std::vector<KeyValue>& before, const at::Tensor& positions, const at::Tensor& visible);
  bool has_frozen_text() const;  // and with it all that makes tokens of images and tasks
  // The suffix x [B, S, expert_width] -> the same after the expert; visible bool [B, S, P + S].
  at::Tensor decode(at::Tensor x, const std::vector<KeyValue>& prefix, const at::Tensor& positions, const at::Tensor& visible);

  // The SmolVLM's own weights: model.safetensors, or shards, in `folder`. Layers that are not used are left out.
  void load_vlm(const std::string& folder);
  void set_activation_checkpointing(bool on);
  // A frozen part stays in eval mode.
  void train(bool on = true) override;
  // Parameters that are bfloat16 where LeRobot's are.
  std::vector<at::Tensor> bfloat16_parameters();

 private:
  void freeze();
  bool is_joint(int64_t layer) const;  // actions attend to each other

  SmolVlaOptions options_;
  SmolVlmConfig config_;
  LlamaOptions expert_;
  bool checkpoint_layers_ = false;
  std::shared_ptr<torch::nn::Module> vlm_, text_model_, lm_expert_;
  std::shared_ptr<SiglipTower> vision_model_;
  torch::nn::Linear connector_{nullptr}, lm_head_{nullptr};
  torch::nn::Embedding embed_tokens_{nullptr};
  std::vector<std::shared_ptr<LlamaLayer>> vlm_layers_;
  std::vector<std::shared_ptr<LlamaLayer>> expert_layers_;
  std::vector<std::shared_ptr<LlamaLayer>> expert_at_;  // by layer of the SmolVLM; null where the expert has none
  std::shared_ptr<RmsNorm> expert_norm_;
};

}  // namespace vla
