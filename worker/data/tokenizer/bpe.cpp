#include "worker/data/tokenizer/bpe.hpp"

#include <queue>
#include <tuple>

#include "common/error.hpp"
#include "worker/data/tokenizer/json_node.hpp"
#include "worker/data/tokenizer/unicode.hpp"

namespace vla::data {

BytePairModel::BytePairModel(const JsonNode& node) {
  const std::string type = node.text_or("type", "BPE");
  if (type != "BPE") node["type"].refuse("BPE, as in the tokenizers of SmolLM2, Qwen2, Llama 3 and GPT-2");
  node.allow_keys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                   "byte_fallback", "ignore_merges", "vocab", "merges"});
  const nlohmann::json& dropout = node["dropout"].value();
  if (!dropout.is_null() && dropout != 0.0) node["dropout"].refuse("null");
  prefix_ = node.text_or("continuing_subword_prefix", "");
  suffix_ = node.text_or("end_of_word_suffix", "");
  fuse_unknown_ = node.flag_or("fuse_unk", false);
  byte_fallback_ = node.flag_or("byte_fallback", false);
  ignore_merges_ = node.flag_or("ignore_merges", false);

  const JsonNode vocabulary = node["vocab"];
  if (!vocabulary.value().is_object()) vocabulary.refuse("{token: number}");
  vocabulary_.reserve(vocabulary.value().size());
  for (const auto& [token, number] : vocabulary.value().items()) {
    vocabulary_.emplace(token, JsonNode(number, fmt::format("{}.{}", vocabulary.place(), token)).id());
  }
  const JsonNode unknown = node["unk_token"];
  if (!unknown.is_null()) {
    const auto found = vocabulary_.find(unknown.text());
    if (found == vocabulary_.end()) unknown.refuse("a token of the vocabulary");
    unknown_ = static_cast<uint32_t>(found->second);
  }
  read_merges(node["merges"]);
}

void BytePairModel::read_merges(const JsonNode& merges) {
  if (!merges.value().is_array()) merges.refuse("a list");
  merges_.reserve(merges.value().size());
  const auto id_of = [&](std::string_view token, const nlohmann::json& merge) {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end()) JsonNode(merge, merges.place()).refuse("tokens of the vocabulary");
    return static_cast<uint32_t>(found->second);
  };
  uint32_t rank = 0;
  for (const nlohmann::json& merge : merges.value()) {
    std::string left, right;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos)
        JsonNode(merge, merges.place()).refuse("two tokens");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      JsonNode(merge, merges.place()).refuse("two tokens");
    }
    if (right.size() < prefix_.size())
      JsonNode(merge, merges.place()).refuse("a second token with continuing_subword_prefix");
    const uint32_t merged = id_of(left + right.substr(prefix_.size()), merge);
    merges_[uint64_t{id_of(left, merge)} << 32 | id_of(right, merge)] = {rank++, merged};
  }
}

bool BytePairModel::add_bytes(std::string_view text, std::vector<Symbol>& symbols) const {
  const size_t before = symbols.size();
  for (const char byte : text) {
    const auto found = vocabulary_.find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
    if (found == vocabulary_.end()) {
      symbols.resize(before);
      return false;
    }
    symbols.push_back({.id = static_cast<uint32_t>(found->second)});
  }
  return true;
}

std::vector<BytePairModel::Symbol> BytePairModel::to_symbols(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  bool unknown_waits = false;
  const auto add_unknown = [&] {
    if (unknown_waits) symbols.push_back({.id = *unknown_});
  };
  for (size_t i = 0; i < piece.size();) {
    const size_t begin = i;
    next_character(piece, i);
    std::string_view text = piece.substr(begin, i - begin);
    std::string with_marks;
    if (!(prefix_.empty() && suffix_.empty())) {
      with_marks = (begin > 0 ? prefix_ : "") + std::string(text) + (i == piece.size() ? suffix_ : "");
      text = with_marks;
    }
    if (const auto found = vocabulary_.find(text); found != vocabulary_.end()) {
      add_unknown();
      unknown_waits = false;
      symbols.push_back({.id = static_cast<uint32_t>(found->second)});
    } else if (!(byte_fallback_ && add_bytes(text, symbols)) && unknown_) {
      // As in the library, one that waits is overtaken by bytes.
      if (!fuse_unknown_) add_unknown();
      unknown_waits = true;
    }
  }
  add_unknown();
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1;
  }
  return symbols;
}

const BytePairModel::Merge* BytePairModel::find_merge(uint32_t left, uint32_t right) const {
  const auto found = merges_.find(uint64_t{left} << 32 | right);
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairModel::merge_all(std::vector<Symbol>& symbols) const {
  // Lowest rank first, of these the leftmost. Entries whose neighbours have changed since are told by the token they would make.
  struct Candidate {
    uint32_t rank = 0;
    int32_t left = 0;
    uint32_t id = 0;
    bool operator<(const Candidate& other) const { return std::tie(rank, left) > std::tie(other.rank, other.left); }
  };
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[static_cast<size_t>(left)].next < 0) return;
    const Symbol& symbol = symbols[static_cast<size_t>(left)];
    const Merge* merge = find_merge(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
    if (merge != nullptr) candidates.push({merge->rank, left, merge->id});
  };
  for (size_t i = 0; i < symbols.size(); ++i) consider(static_cast<int32_t>(i));
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[static_cast<size_t>(best.left)];
    if (!left.is_alive || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) continue;
    left.id = best.id;
    left.next = right.next;
    right.is_alive = false;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
}

void BytePairModel::encode(std::string_view piece, std::vector<int64_t>& ids) const {
  if (ignore_merges_) {
    if (const auto found = vocabulary_.find(piece); found != vocabulary_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  std::vector<Symbol> symbols = to_symbols(piece);
  merge_all(symbols);
  for (const Symbol& symbol : symbols) {
    if (symbol.is_alive) ids.push_back(symbol.id);
  }
}

}  // namespace vla::data
