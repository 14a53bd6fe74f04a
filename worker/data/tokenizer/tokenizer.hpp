// Text to numbers of tokens and back, as Hugging Face's `tokenizers` do it by the same tokenizer.json with a byte-pair model (SmolLM2, Qwen2,
// Llama 3, GPT-2). Leaves out the file's truncation and padding, which are the caller's (token_batch.hpp), and dropout. Immutable: any
// number of threads. Throws DataError naming file, key and value for what is damaged or not supported: nothing is ignored silently.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "worker/data/tokenizer/added_tokens.hpp"
#include "worker/data/tokenizer/bpe.hpp"
#include "worker/data/tokenizer/normalizer.hpp"
#include "worker/data/tokenizer/pre_tokenizer.hpp"
#include "worker/data/tokenizer/special_tokens.hpp"
#include "worker/data/tokenizer/token_decoder.hpp"

namespace vla::data {

class Tokenizer {
 public:
  explicit Tokenizer(const std::string& tokenizer_json_path);

  // Ill-formed UTF-8 counts as U+FFFD. Throws Error for a text of more than 16 MiB.
  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens = true) const;
  // Numbers that are no token's are left out.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = false) const;

  std::optional<int64_t> token_id(std::string_view token) const;
  int64_t vocab_size() const { return vocab_size_; }  // the greatest number + 1, added tokens included
  const SpecialTokens& special_tokens() const { return special_tokens_; }
  const std::string& path() const { return path_; }

 private:
  Tokenizer(const JsonNode& file, const std::string& path);
  void add_tokens(const JsonNode& list);

  struct Token {
    std::string text;
    bool special = false;
  };

  std::string path_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BytePairModel model_;
  TokenDecoder decoder_;
  AddedTokenFinder in_text_, in_normalized_;
  std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>> added_ids_;
  std::unordered_map<int64_t, Token> tokens_;
  int64_t vocab_size_ = 0;
  SpecialTokens special_tokens_;
};

}  // namespace vla::data
