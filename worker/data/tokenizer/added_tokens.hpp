// The "added_tokens" of tokenizer.json: texts that are one token wherever they stand, found before anything is split. Immutable, any
// thread. Throws DataError.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "worker/data/tokenizer/bpe.hpp"

namespace vla::data {

class JsonNode;

struct AddedToken {
  std::string content;
  int64_t id = 0;
  bool special = false;
  bool normalized = false;  // looked for in the normalized text
  bool lstrip = false;  // takes the white space before it along
  bool rstrip = false;
  bool single_word = false;  // only where no word character touches it
};

// In the file's order. Each has its number in the vocabulary or the next one behind it, as the library would give it.
std::vector<AddedToken> read_added_tokens(const JsonNode& list, const Vocabulary& vocabulary);

class AddedTokenFinder {
 public:
  void add(std::string_view text, const AddedToken& token);

  struct Part {
    std::string_view text = {};  // where no token stands
    std::optional<int64_t> id = {};
  };
  // The whole text in order: leftmost tokens, of these the longest, and what lies between.
  std::vector<Part> split(std::string_view text) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t position, size_t& end) const;

  std::unordered_map<uint64_t, uint32_t> next_node_;  // node << 8 | byte; the root is 0
  std::unordered_map<uint32_t, AddedToken> token_at_;
  std::bitset<256> first_bytes_;
  uint32_t nodes_ = 1;
};

}  // namespace vla::data
