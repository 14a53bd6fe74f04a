// What is done to a text before it is split: the "normalizer" of tokenizer.json. Immutable, any thread. Throws DataError for kinds that are
// not known, Error where a text becomes too long. The tables are those of ICU 72: some 130 characters newer than the ones of tokenizers
// 0.22.2 (Unicode 12) differ in NFKC and NFKD, one in NFD, none in NFC; 55 that ICU 72 does not know yet differ in lower case.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace vla::data {

class JsonNode;

class Normalizer {
 public:
  explicit Normalizer(const JsonNode& node);  // null = changes nothing

  std::string operator()(std::string text) const;

 private:
  void add(const JsonNode& node);

  std::vector<std::function<std::string(std::string)>> steps_;
};

}  // namespace vla::data
