#include "worker/data/tokenizer/token_decoder.hpp"

#include <charconv>
#include <numeric>

#include "common/error.hpp"
#include "worker/data/tokenizer/byte_alphabet.hpp"
#include "worker/data/tokenizer/json_node.hpp"
#include "worker/data/tokenizer/text_pattern.hpp"
#include "worker/data/tokenizer/unicode.hpp"

namespace vla::data {
namespace {

using Tokens = std::vector<std::string>;

std::string join(const Tokens& tokens) { return std::accumulate(tokens.begin(), tokens.end(), std::string()); }

// The byte that a token like <0x0A> stands for, or -1.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 ? byte : -1;
}

// Bytes in a row become text together; where they are none, each becomes U+FFFD.
void decode_bytes(Tokens& tokens) {
  Tokens decoded;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (replace_invalid_utf8(bytes) == bytes) {
      decoded.push_back(bytes);
    } else {
      decoded.insert(decoded.end(), bytes.size(), "\uFFFD");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const int byte = byte_of(token); byte >= 0) {
      bytes += static_cast<char>(byte);
    } else {
      flush();
      decoded.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(decoded);
}

// Removes up to `start` times `content` from the begin of each token and up to `stop` times from its end.
void strip(Tokens& tokens, std::string_view content, int64_t start, int64_t stop) {
  for (std::string& token : tokens) {
    std::string_view rest = token;
    for (int64_t i = 0; i < start && rest.starts_with(content); ++i) rest.remove_prefix(content.size());
    for (int64_t i = 0; i < stop && rest.ends_with(content); ++i) rest.remove_suffix(content.size());
    token = std::string(rest);
  }
}

}  // namespace

TokenDecoder::TokenDecoder(const JsonNode& node) {
  if (!node.is_null()) {
    add(node);
  } else {
    steps_.push_back([](Tokens& tokens) {
      for (size_t i = 1; i < tokens.size(); ++i) tokens[i] = fmt::format(" {}", tokens[i]);
    });
  }
}

void TokenDecoder::add(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "Sequence") {
    node.allow_keys({"type", "decoders"});
    for (const JsonNode& part : node["decoders"].list()) add(part);
  } else if (type == "ByteLevel") {
    node.allow_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    steps_.push_back([](Tokens& tokens) {
      for (std::string& token : tokens) token = from_byte_alphabet(token);
      tokens = {replace_invalid_utf8(join(tokens))};
    });
  } else if (type == "Replace") {
    node.allow_keys({"type", "pattern", "content"});
    steps_.push_back([pattern = TextPattern(node["pattern"]), content = node["content"].text()](Tokens& tokens) {
      for (std::string& token : tokens) token = replace_matches(pattern, token, content);
    });
  } else if (type == "ByteFallback") {
    node.allow_keys({"type"});
    steps_.emplace_back(decode_bytes);
  } else if (type == "Fuse") {
    node.allow_keys({"type"});
    steps_.push_back([](Tokens& tokens) { tokens = {join(tokens)}; });
  } else if (type == "Strip") {
    node.allow_keys({"type", "content", "start", "stop"});
    const std::string content = node["content"].text();
    if (content.empty()) node["content"].refuse("a character");
    steps_.push_back([content, start = node["start"].id(), stop = node["stop"].id()](Tokens& tokens) {
      strip(tokens, content, start, stop);
    });
  } else {
    node["type"].refuse("ByteLevel, Replace, ByteFallback, Fuse, Strip or Sequence");
  }
}

std::string TokenDecoder::operator()(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) step(tokens);
  return join(tokens);
}

}  // namespace vla::data
