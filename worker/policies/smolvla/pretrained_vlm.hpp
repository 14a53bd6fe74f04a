// What a SmolVLA takes from its vision-language model beside the weights: sizes and tokens. The model is a folder or a name in the
// Hugging Face cache; nothing is downloaded. UsageError naming the places looked at when it is not found.
#pragma once

#include <string>
#include <vector>

#include "worker/data/tokenizer/tokenizer.hpp"
#include "worker/policies/policy.hpp"
#include "worker/policies/smolvla/smolvlm_config.hpp"

namespace vla {

// Of config.json; of the models that are known without it where there is none.
SmolVlmConfig pretrained_sizes(const std::string& name);
// The folder with config.json.
std::string pretrained_folder(const std::string& name);

// Error if a token is none of the model's `vocab_size`: a tokenizer of another model.
void require_in_vocabulary(const at::Tensor& tokens, int64_t vocab_size, const std::string& name);

// int64 [2]: the tokens <fake_token_around_image> and <global-img> of the model's tokenizer.
at::Tensor image_frame_tokens(const std::string& name);

struct TaskTokens {
  at::Tensor tokens;  // int64 [tasks, L]
  at::Tensor valid;  // bool [tasks, L]
};

class TaskTokenizer {
 public:
  explicit TaskTokenizer(const TextProcessor& processor);
  // Each text ends with a line break and is padded on the right.
  TaskTokens tokenize(std::vector<std::string> texts) const;

 private:
  TextProcessor processor_;
  data::Tokenizer tokenizer_;
  int64_t pad_id_;
};

}  // namespace vla
