// Byte-pair encoding of one piece: the "model" of tokenizer.json. Owns vocabulary and merges; immutable, any thread, O(n log n) in the
// piece's characters. Throws DataError for other models and for merges that name unknown tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace vla::data {

class JsonNode;

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Vocabulary = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

class BytePairModel {
 public:
  explicit BytePairModel(const JsonNode& node);

  void encode(std::string_view piece, std::vector<int64_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    uint32_t rank = 0;
    uint32_t id = 0;  // of the merged token
  };
  struct Symbol {
    uint32_t id = 0;
    int32_t previous = -1;
    int32_t next = -1;
    bool is_alive = true;
  };

  void read_merges(const JsonNode& merges);
  std::vector<Symbol> to_symbols(std::string_view piece) const;
  bool add_bytes(std::string_view text, std::vector<Symbol>& symbols) const;
  const Merge* find_merge(uint32_t left, uint32_t right) const;
  void merge_all(std::vector<Symbol>& symbols) const;

  Vocabulary vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;  // left id << 32 | right id
  std::optional<uint32_t> unknown_;
  std::string prefix_, suffix_;  // of symbols inside a piece, of its last symbol
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace vla::data
