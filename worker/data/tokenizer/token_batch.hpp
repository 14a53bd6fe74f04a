// Texts of a batch as one rectangle of token numbers: cut, framed and padded on the right, as
// `tokenizer(texts, max_length=…, truncation=True, padding=…)` in transformers. Throws UsageError where max_length is too short.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vla::data {

class Tokenizer;

enum class TokenPadding {
  kLongest,  // to the longest text of the batch
  kMaxLength,  // to max_length
};

struct TokenBatch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> tokens = {};  // [rows, length]
  std::vector<uint8_t> mask = {};  // [rows, length], 1 = of the text, 0 = padding
};

TokenBatch tokenize_batch(const Tokenizer& tokenizer, std::span<const std::string> texts, int64_t max_length,
                          TokenPadding padding, int64_t pad_id);

// The number of the "pad_token" that tokenizer_config.json, else special_tokens_map.json beside the tokenizer's file names. Throws
// DataError where neither does or the token is unknown.
int64_t read_pad_id(const Tokenizer& tokenizer);

}  // namespace vla::data
