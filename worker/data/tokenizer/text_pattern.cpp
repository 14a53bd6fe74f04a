#include "worker/data/tokenizer/text_pattern.hpp"

#include <unicode/regex.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include "common/error.hpp"
#include "worker/data/tokenizer/json_node.hpp"

namespace vla::data {
namespace {

constexpr size_t kLongestExpression = 4096;
constexpr int kMostTicks = 2000;  // each 10,000 of ICU's steps

UBool count_tick(const void* context, int32_t) {
  int& ticks = *static_cast<int*>(const_cast<void*>(context));
  return ++ticks < kMostTicks;
}

// Matches as the onig crate's iterator gives them: an empty one right behind another match is skipped.
class Matches {
 public:
  Matches(const icu::RegexPattern& pattern, const icu::UnicodeString& text) : text_(text) {
    matcher_.reset(pattern.matcher(text, status_));
    check();
    matcher_->setMatchCallback(count_tick, &ticks_, status_);
    check();
  }

  bool next(int32_t& begin, int32_t& end) {
    while (from_ <= text_.length()) {
      const bool found = matcher_->find(from_, status_);
      check();
      if (!found) return false;
      begin = matcher_->start(status_);
      end = matcher_->end(status_);
      check();
      if (begin != end || last_end_ != end) {
        from_ = last_end_ = end;
        return true;
      }
      from_ = from_ < text_.length() ? text_.moveIndex32(from_, 1) : from_ + 1;
    }
    return false;
  }

 private:
  void check() const {
    if (U_FAILURE(status_))
      throw cxxrun::Error("a pattern of the tokenizer fails on a text of {} characters: {}", text_.length(),
                          u_errorName(status_));
  }

  const icu::UnicodeString& text_;
  UErrorCode status_ = U_ZERO_ERROR;
  std::unique_ptr<icu::RegexMatcher> matcher_;
  int32_t from_ = 0, last_end_ = -1;
  int ticks_ = 0;
};

}  // namespace

struct TextPattern::Compiled {
  Compiled(std::string_view expression, uint32_t flags, const std::string& place) {
    UErrorCode status = U_ZERO_ERROR;
    UParseError error;
    const auto wide = icu::UnicodeString::fromUTF8({expression.data(), static_cast<int32_t>(expression.size())});
    pattern.reset(icu::RegexPattern::compile(wide, flags, error, status));
    if (U_FAILURE(status))
      throw cxxrun::DataError("{}: '{}' is not supported as a pattern ({})", place, expression, u_errorName(status));
  }

  std::unique_ptr<const icu::RegexPattern> pattern;
};

TextPattern::TextPattern(const JsonNode& node) {
  node.allow_keys({"String", "Regex"});
  const bool is_text = !node["String"].is_null();
  const std::string expression = is_text ? node["String"].text() : node["Regex"].text();
  if (expression.size() > kLongestExpression) node.refuse("a shorter pattern");
  // Ruby's ^ and $ are those of lines, and only \n ends one.
  compiled_ = is_text ? std::make_shared<Compiled>(expression, UREGEX_LITERAL, node.place())
                      : std::make_shared<Compiled>(
                            to_icu_expression(expression, node),
                            UREGEX_MULTILINE | UREGEX_UNIX_LINES | UREGEX_ERROR_ON_UNKNOWN_ESCAPES, node.place());
}

TextPattern::TextPattern(std::string_view icu_expression)
    : compiled_(std::make_shared<Compiled>(icu_expression, 0, "own pattern")) {}

std::vector<Span> TextPattern::spans(std::string_view text) const {
  if (text.empty()) return {{}};
  const auto wide = icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  std::vector<Span> spans;
  int32_t unit = 0;
  size_t byte = 0;
  const auto byte_of = [&](int32_t target) {
    while (unit < target) {
      const UChar32 character = wide.char32At(unit);
      unit += U16_LENGTH(character);
      byte += U8_LENGTH(character);
    }
    return byte;
  };
  size_t previous = 0;
  Matches matches(*compiled_->pattern, wide);
  for (int32_t begin, end; matches.next(begin, end);) {
    const size_t from = byte_of(begin), to = byte_of(end);
    if (previous != from) spans.push_back({previous, from, false});
    spans.push_back({from, to, true});
    previous = to;
  }
  if (previous != text.size()) spans.push_back({previous, text.size(), false});
  return spans;
}

std::string replace_matches(const TextPattern& pattern, std::string_view text, std::string_view content) {
  std::string result;
  for (const Span& span : pattern.spans(text)) {
    // The library's own alignment goes wrong there, so that no result is right.
    if (span.is_match && span.begin == span.end)
      throw cxxrun::Error("a pattern by which the tokenizer replaces matches nothing: an empty place");
    result += span.is_match ? content : text.substr(span.begin, span.end - span.begin);
    require_bounded(result.size());
  }
  return result;
}

void require_bounded(size_t bytes) {
  if (bytes > kLongestText)
    throw cxxrun::Error("a text of more than {} bytes is too long for the tokenizer", kLongestText);
}

}  // namespace vla::data
