// The sizes of a SmolVLM: its config.json as transformers reads it, absent keys with transformers' defaults. Untrusted: sizes are bounded
// and must fit each other. Throws Error naming file and key.
#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "worker/policies/nn/llama.hpp"
#include "worker/policies/nn/siglip.hpp"

namespace vla {

struct SmolVlmConfig {
  SiglipOptions vision;
  LlamaOptions text;
  int64_t text_layers = 32;
  int64_t vocab_size = 32000;
  int64_t scale_factor = 2;  // a text token holds scale_factor² patches of an image
  // The dtypes that transformers makes the parts in when it initialises them.
  at::ScalarType vision_dtype = at::kFloat, text_dtype = at::kFloat;

  int64_t token_pixels() const { return vision.patch_size * scale_factor; }  // along a side of the image
};

SmolVlmConfig read_smolvlm_config(const std::string& path);

// Of models whose sizes are known without a file: SmolVLM2-500M-Video-Instruct.
std::optional<SmolVlmConfig> known_smolvlm(const std::string& name);

}  // namespace vla
