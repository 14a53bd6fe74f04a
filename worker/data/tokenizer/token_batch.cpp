#include "worker/data/tokenizer/token_batch.hpp"

#include <algorithm>
#include <filesystem>

#include "common/error.hpp"
#include "worker/data/tokenizer/json_node.hpp"
#include "worker/data/tokenizer/tokenizer.hpp"

namespace vla::data {

TokenBatch tokenize_batch(const Tokenizer& tokenizer, std::span<const std::string> texts, int64_t max_length,
                          TokenPadding padding, int64_t pad_id) {
  const auto& [before, after] = tokenizer.special_tokens();
  const auto room = max_length - static_cast<int64_t>(before.size() + after.size());
  if (max_length < 1 || room < 0)
    throw cxxrun::UsageError("a text of at most {} tokens is too short for the {} that {} adds to each", max_length,
                             before.size() + after.size(), tokenizer.path());
  std::vector<std::vector<int64_t>> rows;
  for (const std::string& text : texts) {
    std::vector<int64_t> ids = tokenizer.encode(text, false);
    ids.resize(std::min(ids.size(), static_cast<size_t>(room)));
    ids.insert(ids.begin(), before.begin(), before.end());
    ids.insert(ids.end(), after.begin(), after.end());
    rows.push_back(std::move(ids));
  }
  size_t length = padding == TokenPadding::kMaxLength ? static_cast<size_t>(max_length) : 0;
  for (const auto& row : rows) length = std::max(length, row.size());

  TokenBatch batch{.rows = static_cast<int64_t>(rows.size()), .length = static_cast<int64_t>(length)};
  batch.tokens.assign(rows.size() * length, pad_id);
  batch.mask.assign(rows.size() * length, 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), batch.tokens.begin() + static_cast<ptrdiff_t>(i * length));
    std::fill_n(batch.mask.begin() + static_cast<ptrdiff_t>(i * length), rows[i].size(), uint8_t{1});
  }
  return batch;
}

int64_t read_pad_id(const Tokenizer& tokenizer) {
  const auto folder = std::filesystem::path(tokenizer.path()).parent_path();
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = folder / name;
    if (!std::filesystem::exists(path)) continue;
    const nlohmann::json json = read_large_json(path);
    const JsonNode token = JsonNode(json, path + ": ")["pad_token"];
    if (token.is_null()) continue;
    const std::string text = token.value().is_object() ? token["content"].text() : token.text();
    if (const auto id = tokenizer.token_id(text)) return *id;
    token.refuse("a token of " + tokenizer.path());
  }
  throw cxxrun::DataError(
      "{}: neither tokenizer_config.json nor special_tokens_map.json beside it names a \"pad_token\"",
      tokenizer.path());
}

}  // namespace vla::data
