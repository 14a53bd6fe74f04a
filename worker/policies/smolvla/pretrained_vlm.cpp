#include "worker/policies/smolvla/pretrained_vlm.hpp"

#include <filesystem>

#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/data/hub_cache.hpp"
#include "worker/data/tokenizer/token_batch.hpp"

namespace vla {

SmolVlmConfig pretrained_sizes(const std::string& name) {
  std::string file;
  try {
    file = data::find_pretrained_file(name, "config.json");
  } catch (const cxxrun::UsageError&) {
    if (const auto known = known_smolvlm(name)) return *known;
    throw;
  }
  return read_smolvlm_config(file);
}

std::string pretrained_folder(const std::string& name) {
  return std::filesystem::path(data::find_pretrained_file(name, "config.json")).parent_path().string();
}

void require_in_vocabulary(const at::Tensor& tokens, int64_t vocab_size, const std::string& name) {
  const int64_t largest = tokens.numel() > 0 ? tokens.max().item<int64_t>() : 0;
  if (largest < vocab_size) return;
  throw cxxrun::Error("{}: its tokenizer gives token {}, but its config.json has a vocab_size of {}: they are of different models", name, largest, vocab_size);
}

at::Tensor image_frame_tokens(const std::string& name) {
  const data::Tokenizer tokenizer(data::find_pretrained_file(name, "tokenizer.json"));
  std::vector<int64_t> ids;
  for (const char* token : {"<fake_token_around_image>", "<global-img>"}) {
    const auto id = tokenizer.token_id(token);
    if (!id) throw cxxrun::UsageError("policy.add_image_special_tokens = true: {} has no token {}", tokenizer.path(), token);
    ids.push_back(*id);
  }
  return torch::tensor(ids);
}

TaskTokenizer::TaskTokenizer(const TextProcessor& processor)
    : processor_(processor), tokenizer_(data::find_pretrained_file(processor.tokenizer, "tokenizer.json")), pad_id_(data::read_pad_id(tokenizer_)) {}

TaskTokens TaskTokenizer::tokenize(std::vector<std::string> texts) const {
  for (std::string& text : texts) {
    if (!text.ends_with('\n')) text += '\n';
  }
  const auto padding = processor_.padding == "longest" ? data::TokenPadding::kLongest : data::TokenPadding::kMaxLength;
  const data::TokenBatch batch = data::tokenize_batch(tokenizer_, texts, processor_.max_length, padding, pad_id_);
  const auto rectangle = [&](const auto& values) { return torch::tensor(values).view({batch.rows, batch.length}); };
  return {rectangle(batch.tokens), rectangle(batch.mask).to(at::kBool)};
}

}  // namespace vla
