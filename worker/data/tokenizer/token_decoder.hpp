// Turns the texts of tokens back into one text: the "decoder" of tokenizer.json. Immutable, any thread. Throws DataError for kinds that
// are not known.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace vla::data {

class JsonNode;

class TokenDecoder {
 public:
  explicit TokenDecoder(const JsonNode& node);  // null = tokens with spaces between

  std::string operator()(std::vector<std::string> tokens) const;

 private:
  using Step = std::function<void(std::vector<std::string>& tokens)>;

  void add(const JsonNode& node);

  std::vector<Step> steps_;
};

}  // namespace vla::data
