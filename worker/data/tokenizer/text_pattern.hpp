// A pattern that cuts texts into matches and what lies between. Regular expressions are in the notation of Oniguruma's Ruby syntax, which
// Hugging Face's tokenizers use, and are run by ICU; what both do not read alike is refused when compiled. Immutable, any thread.
// Throws DataError naming `place`, or Error when a text takes the engine too many steps.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vla::data {

class JsonNode;

struct Span {
  size_t begin = 0;  // bytes
  size_t end = 0;
  bool is_match = false;
};

class TextPattern {
 public:
  // {"String": text} or {"Regex": expression}
  explicit TextPattern(const JsonNode& node);
  // `icu_expression` in ICU's own notation.
  explicit TextPattern(std::string_view icu_expression);

  // Covers the whole of `text`, in order; an empty text is one span that does not match.
  std::vector<Span> spans(std::string_view text) const;

 private:
  struct Compiled;

  std::shared_ptr<const Compiled> compiled_;
};

// ICU's notation of an expression in Oniguruma's.
std::string to_icu_expression(std::string_view expression, const JsonNode& place);

// `text` with `content` in place of each match. Throws Error where the result becomes too long or a match is empty.
std::string replace_matches(const TextPattern& pattern, std::string_view text, std::string_view content);

inline constexpr size_t kLongestText = 16U << 20;  // bytes, of a text and of what normalizing makes of it
void require_bounded(size_t bytes);

}  // namespace vla::data
