// Splits a normalized text into the pieces within which a model merges: the "pre_tokenizer" of tokenizer.json. Immutable, any thread.
// Throws DataError for kinds that are not known.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vla::data {

class JsonNode;

class PreTokenizer {
 public:
  explicit PreTokenizer(const JsonNode& node);  // null = one piece

  std::vector<std::string> operator()(std::string text) const;

 private:
  // Appends what becomes of a piece; empty ones are dropped.
  using Step = std::function<void(std::string_view piece, std::vector<std::string>& pieces)>;

  void add(const JsonNode& node);

  std::vector<Step> steps_;
};

}  // namespace vla::data
