#include "worker/data/tokenizer/tokenizer.hpp"

#include <algorithm>

#include "common/error.hpp"
#include "worker/data/tokenizer/json_node.hpp"
#include "worker/data/tokenizer/text_pattern.hpp"
#include "worker/data/tokenizer/unicode.hpp"

namespace vla::data {

Tokenizer::Tokenizer(const std::string& tokenizer_json_path)
    : Tokenizer(JsonNode(read_large_json(tokenizer_json_path), tokenizer_json_path + ": "), tokenizer_json_path) {}

Tokenizer::Tokenizer(const JsonNode& file, const std::string& path)
    : path_(path),
      normalizer_(file["normalizer"]),
      pre_tokenizer_(file["pre_tokenizer"]),
      model_(file["model"]),
      decoder_(file["decoder"]) {
  file.allow_keys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                   "decoder", "model"});
  if (const std::string version = file["version"].text(); version != "1.0") file["version"].refuse("1.0");
  for (const auto& [text, id] : model_.vocabulary()) {
    if (!tokens_.try_emplace(id, Token{text}).second)
      throw cxxrun::DataError("{}: model.vocab gives the number {} to two tokens", path, id);
    vocab_size_ = std::max(vocab_size_, id + 1);
  }
  add_tokens(file["added_tokens"]);
  special_tokens_ = read_special_tokens(file["post_processor"], vocab_size_);
}

void Tokenizer::add_tokens(const JsonNode& list) {
  for (const AddedToken& token : read_added_tokens(list, model_.vocabulary())) {
    if (token.normalized) {
      in_normalized_.add(normalizer_(token.content), token);
    } else {
      in_text_.add(token.content, token);
    }
    added_ids_[token.content] = token.id;
    tokens_[token.id] = {token.content, token.special};
    vocab_size_ = std::max(vocab_size_, token.id + 1);
  }
}

std::vector<int64_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  require_bounded(text.size());
  const std::string valid = replace_invalid_utf8(text);
  std::vector<int64_t> ids;
  if (add_special_tokens) ids = special_tokens_.before;
  for (const AddedTokenFinder::Part& part : in_text_.split(valid)) {
    if (part.id) {
      ids.push_back(*part.id);
      continue;
    }
    const std::string normalized = normalizer_(std::string(part.text));
    for (const AddedTokenFinder::Part& normalized_part : in_normalized_.split(normalized)) {
      if (normalized_part.id) {
        ids.push_back(*normalized_part.id);
        continue;
      }
      for (const std::string& piece : pre_tokenizer_(std::string(normalized_part.text))) model_.encode(piece, ids);
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), special_tokens_.after.begin(), special_tokens_.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> texts;
  for (const int64_t id : ids) {
    const auto token = tokens_.find(id);
    if (token != tokens_.end() && !(skip_special_tokens && token->second.special)) texts.push_back(token->second.text);
  }
  return decoder_(std::move(texts));
}

std::optional<int64_t> Tokenizer::token_id(std::string_view token) const {
  if (const auto added = added_ids_.find(token); added != added_ids_.end()) return added->second;
  const auto found = model_.vocabulary().find(token);
  return found == model_.vocabulary().end() ? std::nullopt : std::optional(found->second);
}

}  // namespace vla::data
