// The tokens that frame a text, such as <s> … </s>: what the "post_processor" of tokenizer.json adds to a single text. Throws DataError for
// kinds that are not known.
#pragma once

#include <cstdint>
#include <vector>

namespace vla::data {

class JsonNode;

struct SpecialTokens {
  std::vector<int64_t> before;
  std::vector<int64_t> after;
};

SpecialTokens read_special_tokens(const JsonNode& node, int64_t vocab_size);

}  // namespace vla::data
