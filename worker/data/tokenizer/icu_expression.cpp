// Oniguruma's notation -> ICU's. Both agree on most; here is where they do not.
#include <algorithm>
#include <array>
#include <cctype>

#include "common/error.hpp"
#include "worker/data/tokenizer/json_node.hpp"
#include "worker/data/tokenizer/text_pattern.hpp"

namespace vla::data {
namespace {

// Classes of characters whose members differ, or whose letters mean something else in ICU. Valid inside brackets as well.
constexpr std::array<std::pair<char, std::string_view>, 8> kClasses{{
    {'s', "\\p{White_Space}"},
    {'S', "\\P{White_Space}"},
    {'w', "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]"},
    {'W', "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]"},
    {'h', "[0-9A-Fa-f]"},
    {'H', "[^0-9A-Fa-f]"},
    {'d', "\\p{Nd}"},
    {'D', "\\P{Nd}"},
}};
constexpr std::string_view kSameCharacters = "nrtfeaxu";  // one character in both
constexpr std::string_view kSameOutside = "AzZ123456789";

constexpr std::array<std::string_view, 8> kGroups{":", "=", "!", "<=", "<!", ">", "i:", "-i:"};

// Names of classes that ICU reads by POSIX's definitions, Oniguruma by its own.
bool is_posix(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kNames{"alnum", "punct", "graph", "print",
                                                          "word",  "blank", "cntrl", "xdigit"};
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view known) {
    return std::equal(known.begin(), known.end(), name.begin(), name.end(),
                      [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
  });
}

bool is_punctuation(char c) { return c > ' ' && c < 0x7F && !std::isalnum(static_cast<unsigned char>(c)); }

class Translator {
 public:
  Translator(std::string_view expression, const JsonNode& place) : rest_(expression), place_(place) {}

  std::string run() {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        brackets();
      } else if (rest_.starts_with("(?")) {
        group();
      } else {
        if (c == '}' && rest_.size() > 1 && (rest_[1] == '?' || rest_[1] == '+')) refuse("no ? or + after a {count}");
        take(1);
      }
    }
    return std::move(result_);
  }

 private:
  void take(size_t count) {
    result_ += rest_.substr(0, count);
    rest_.remove_prefix(count);
  }

  [[noreturn]] void refuse(std::string_view expected) const { place_.refuse(expected); }

  void group() {
    for (const std::string_view kind : kGroups) {
      if (rest_.substr(2).starts_with(kind)) return take(2 + kind.size());
    }
    // Further right it would reach over alternatives in Oniguruma, but not in ICU.
    if (result_.empty() && rest_.starts_with("(?i)")) return take(4);
    refuse("groups of the kinds (?: (?= (?! (?<= (?<! (?> (?i:");
  }

  // Returns whether it stands for exactly one character.
  bool escape(bool in_brackets) {
    if (rest_.size() < 2) refuse("a character after the last \\");
    const char letter = rest_[1];
    for (const auto& [known, meaning] : kClasses) {
      if (letter != known) continue;
      result_ += meaning;
      rest_.remove_prefix(2);
      return false;
    }
    if (letter == 'p' || letter == 'P') {
      const size_t end = rest_.find('}');
      if (rest_.substr(2, 1) != "{" || end == rest_.npos) refuse("\\p{name}");
      if (is_posix(rest_.substr(3, end - 3))) refuse("\\p{name} with a name of Unicode's");
      take(end + 1);
      return false;
    }
    if (letter == 'v') {
      result_ += "\\x0B";
      rest_.remove_prefix(2);
      return true;
    }
    const bool is_known = kSameCharacters.find(letter) != kSameCharacters.npos || is_punctuation(letter) ||
                          letter == ' ' || (!in_brackets && kSameOutside.find(letter) != kSameOutside.npos);
    if (!is_known) refuse(fmt::format("no \\{} in a pattern", letter));
    const bool has_braces = (letter == 'x' || letter == 'u') && rest_.substr(2, 1) == "{";
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 0;
    const size_t length = has_braces ? rest_.find('}') + 1 : 2 + digits;
    if (length < 2 || length > rest_.size()) refuse("a whole \\x or \\u");
    if (letter == 'x' && !has_braces && rest_[2] >= '8')
      refuse("\\x{…} for what is not ASCII");  // a byte, to Oniguruma
    take(length);
    return true;
  }

  void brackets() {
    int depth = 0;
    bool may_begin_range = false;  // one character stands to the left
    do {
      if (rest_.empty()) refuse("brackets that are closed");
      const char c = rest_.front();
      if (c == '[') {
        if (rest_.starts_with("[:")) refuse("no POSIX brackets");
        take(rest_.starts_with("[^") ? 2 : 1);
        if (rest_.starts_with("]")) refuse("\\] for a bracket in brackets");
        if (++depth > 8) refuse("fewer brackets in brackets");
        may_begin_range = false;
      } else if (c == ']') {
        take(1);
        --depth;
        may_begin_range = false;
      } else if (rest_.starts_with("&&")) {
        take(2);
        may_begin_range = false;
      } else if (c == '-' && may_begin_range && rest_.size() > 1 && rest_[1] != ']') {
        take(1);
        if (rest_.front() == '[' || rest_.starts_with("&&")) refuse("a range that ends in a character");
        if (!character()) refuse("a range that ends in a character");
        may_begin_range = false;
      } else {
        may_begin_range = character();
      }
    } while (depth > 0);
  }

  bool character() {
    if (rest_.front() == '\\') return escape(true);
    // ICU gives more of them a meaning in brackets.
    if (is_punctuation(rest_.front())) result_ += '\\';
    take(1);
    // The rest of a character in UTF-8.
    while (!rest_.empty() && (static_cast<unsigned char>(rest_.front()) & 0xC0) == 0x80) take(1);
    return true;
  }

  std::string_view rest_;
  const JsonNode& place_;
  std::string result_;
};

}  // namespace

std::string to_icu_expression(std::string_view expression, const JsonNode& place) {
  return Translator(expression, place).run();
}

}  // namespace vla::data
