#include "worker/data/tokenizer/added_tokens.hpp"

#include <algorithm>
#include <set>

#include "common/error.hpp"
#include "worker/data/tokenizer/json_node.hpp"
#include "worker/data/tokenizer/unicode.hpp"

namespace vla::data {
namespace {

constexpr size_t kLongestToken = 1024;  // bytes: looking for tokens costs that much a byte of text at worst

bool begins_with_word(std::string_view text) {
  size_t i = 0;
  return !text.empty() && is_word_character(next_character(text, i));
}

bool ends_with_word(std::string_view text) {
  size_t i = text.size();
  return !text.empty() && is_word_character(previous_character(text, i));
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonNode& list, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  std::set<std::string> contents;
  auto next_id = static_cast<int64_t>(vocabulary.size());
  for (const JsonNode& node : list.list()) {
    node.allow_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token{.content = node["content"].text(),
                     .id = node["id"].id(),
                     .special = node.flag("special"),
                     .normalized = node.flag("normalized"),
                     .lstrip = node.flag("lstrip"),
                     .rstrip = node.flag("rstrip"),
                     .single_word = node.flag("single_word")};
    if (token.content.empty() || token.content.size() > kLongestToken)
      node["content"].refuse(fmt::format("1 to {} bytes", kLongestToken));
    if (!contents.insert(token.content).second) node["content"].refuse("another text than the tokens before");
    const auto found = vocabulary.find(token.content);
    const int64_t expected = found == vocabulary.end() ? next_id : found->second;
    if (token.id != expected)
      node["id"].refuse(fmt::format("{}, which '{}' has in the vocabulary or behind it", expected, token.content));
    next_id = std::max(next_id, token.id + 1);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenFinder::add(std::string_view text, const AddedToken& token) {
  if (text.empty()) return;
  if (text.size() > kLongestToken)
    throw cxxrun::DataError("normalizing makes the added token '{}' longer than {} bytes", token.content,
                            kLongestToken);
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [next, is_new] = next_node_.try_emplace(uint64_t{node} << 8 | static_cast<unsigned char>(byte), nodes_);
    nodes_ += is_new;
    node = next->second;
  }
  first_bytes_.set(static_cast<unsigned char>(text[0]));
  token_at_.try_emplace(node, token);
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t position, size_t& end) const {
  const AddedToken* longest = nullptr;
  if (!first_bytes_[static_cast<unsigned char>(text[position])]) return nullptr;
  uint32_t node = 0;
  for (size_t i = position; i < text.size(); ++i) {
    const auto next = next_node_.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (next == next_node_.end()) break;
    node = next->second;
    if (const auto token = token_at_.find(node); token != token_at_.end()) {
      longest = &token->second;
      end = i + 1;
    }
  }
  return longest;
}

std::vector<AddedTokenFinder::Part> AddedTokenFinder::split(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;
  size_t space_end = 0;  // where the last white space that a token took ends
  for (size_t i = 0, end = 0; i < text.size();) {
    const AddedToken* token = longest_at(text, i, end);
    if (token == nullptr) {
      ++i;
      continue;
    }
    size_t begin = i;
    i = end;
    if (token->single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end)))) continue;
    // A token may begin in the space that the one before took.
    if (token->lstrip && begin > done) begin -= trailing_space(text.substr(done, begin - done));
    if (token->rstrip) {
      if (end >= space_end) space_end = end + leading_space(text.substr(end));
      end = space_end;
    }
    if (done < begin) parts.push_back({text.substr(done, begin - done)});
    parts.push_back({.id = token->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
  return parts;
}

}  // namespace vla::data
